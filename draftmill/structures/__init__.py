"""Shelf: families of output structure, one file each.

A file offers `ORDER` (int: the shelf is tried from low to high) and
`derive(probe, *, named=False) -> Structure | None`: the structure when the
probe's ids show that the template is of this kind, None when they do not.
`named` says that the recipe asked for it by name, so that what the author
decided need not be proved again. Files that begin with an underscore hold what
several of them share. Invariant: never a guess; two kinds that both could be
right are None from both, and the recipe has to say.
"""
