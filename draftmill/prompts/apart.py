"""Prompts and dataset lie apart: a recipe may not read what its own run writes.

Where the dataset's place is inside a folder of prompts, or a glob takes in its
objects, they would be read as prompts, and files would come with every write.
Decided from the paths alone, so before the first write too; names that begin
with `.` or `_` are not read, and a dataset may lie behind one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from draftmill.dataset.storage import normal_url
from draftmill.errors import RecipeError
from draftmill.prompts.places import fixed_parts, is_hidden, normal, parts_of, shown
from draftmill.recipe import Prompts

Parts = tuple[str, ...]

_OBJECTS: tuple[Parts, ...] = (
    ("manifests", "00000001.json"),
    *(
        (folder, f"{'0' * 64}.parquet")
        for folder in ("shards", "quarantine", "rejected", "prompts", "completions", "verdicts")
    ),
)
"""Objects as every dataset has them, below its place."""


def check_apart(prompts: Prompts, dataset: str) -> None:
    """Raise RecipeError when one of the prompts' paths takes in the dataset's own objects."""
    objects = [place + below for place in _places(normal_url(dataset)) for below in _OBJECTS]
    for path in prompts.paths:
        for fixed, wild in _patterns(normal(path)):
            if any(_takes(fixed, wild, object_) for object_ in objects):
                raise RecipeError(
                    "the dataset lies inside its own prompts",
                    value=f"prompts.path {shown(path)}, dataset {dataset}",
                    expected="a dataset outside: what a run writes there would be read as prompts",
                    remedy="move the dataset, or name a narrower folder, glob or the files themselves",
                )


def _places(url: str) -> Iterator[Parts]:
    """The place as written, and with links followed."""
    if url.startswith("s3://"):
        yield parts_of(url)
        return
    yield parts_of(url)
    yield parts_of(os.path.realpath(url))


def _patterns(path: str) -> Iterator[tuple[Parts, Parts]]:
    """A path up to its first wildcard, and the rest; a local one also with links followed."""
    if path.startswith(("http://", "https://")):
        return
    if path.startswith("s3://"):
        yield _split(parts_of(path))
        return
    local = os.path.abspath(path.removeprefix("file://"))
    fixed, wild = (parts_of(local), ()) if os.path.exists(local) else _split(parts_of(local))
    yield fixed, wild
    yield parts_of(os.path.realpath(os.path.join(*fixed))), wild


def _split(parts: Parts) -> tuple[Parts, Parts]:
    fixed = fixed_parts(parts)
    return fixed, parts[len(fixed) :]


def _takes(fixed: Parts, wild: Parts, object_: Parts) -> bool:
    """Whether the pattern matches the object or a folder around it, and no name on the way is hidden."""
    rest = object_[len(fixed) :]
    return object_[: len(fixed)] == fixed and not is_hidden(rest) and _matches(wild, rest)


def _matches(wild: Sequence[str], parts: Sequence[str]) -> bool:
    if not wild:
        return True  # what is below a folder that matches is read
    if wild[0] == "**":
        return any(_matches(wild[1:], parts[skipped:]) for skipped in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wild[0]) and _matches(wild[1:], parts[1:])
