"""The shelf of formats that prompts are read from: one file per format.

A plugin has two functions. `sniff(path, head) -> bool` says whether a file is of
this format, from its first bytes (unpacked, wide encodings as UTF-8) and, where
they say nothing, its name; at most one plugin says yes to a file. `read(path, *,
columns=None) -> Iterator[SourceRow]` streams its rows in file order, each with
its line or record number from 1; a row it cannot read is a `SourceRow` with a
fault, a file it cannot read as a whole raises SourceError. Values stay what they
are in the file: text that looks like a date or a number is text.

`SUFFIXES` are the endings that promise the format: a file of such a name that
is none stops a run. `BINARY = True` where no text, and no empty file, can be one.

`columns` are the file's names of columns that matter, None for all. Where
columns are stored one by one, a plugin may give the others as None.
"""
