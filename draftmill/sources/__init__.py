"""The shelf of formats that prompts are read from: one file per format.

A plugin has two functions. `sniff(path, head) -> bool` says whether a file is of
this format, from its name and its first bytes (unpacked when gzipped).
`read(path) -> Iterator[SourceRow]` streams its rows in file order, each with its
line (or record) number from 1; a row it cannot read is a `SourceRow` with a
fault, a file it cannot read as a whole raises SourceError. Values stay what
they are in the file: text that looks like a date or a number is text.
"""
