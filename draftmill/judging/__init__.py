"""The judge of answers, on ids.

Record in: `Answers` (completions or stored rows, flat ids and offsets) and a
`Structure`, which `derive` finds once per run. Record out: `Verdicts`, one code
a row with its position. Invariant: pure, no text, no model's name; the same
ids and structure always give the same verdict, so that a stored row can be
judged again whenever the rules change.
"""
