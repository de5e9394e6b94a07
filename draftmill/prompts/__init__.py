"""Source files in, canonical prompts out.

`files` finds and opens, a plugin of the `sources` shelf reads rows, `shapes`
turns one row into messages and tools, `load` does it for a whole recipe.
Invariant: every row of every file is either a prompt of the table or one
`Rejection` with its file and line; a file that is unreadable as a whole stops
the run, since its missing rows would look like removed prompts.
"""
