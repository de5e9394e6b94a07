"""What a file's name promises, and the refusal of a file that does not keep it.

A part of a source may turn into something else: a pointer where a fetch was
forgotten, an error page, an upload of no bytes. Left out with a word, the rows
it held would look like removed prompts. So a file whose ending is one of a
format stops the run unless it can be read as one; a file of any other name
(notes, pictures, checksums) is none of the source's business.
"""

from __future__ import annotations

import functools
from enum import Enum

from draftmill import plugins
from draftmill.errors import SourceError
from draftmill.prompts.compression import without_packing
from draftmill.prompts.opening import open_raw, shown


class Promise(Enum):
    """What the ending of a name says is in the file."""

    TEXT = "rows as text"
    BINARY = "rows in a format that no text and no empty file is"
    PACKED = "something packed"
    NOTHING = "nothing"


def promise(path: str) -> Promise:
    """By the endings of all sources, under a packing's or not: `a.jsonl`, `a.csv.gz`."""
    name = without_packing(path)
    for suffixes, binary in _known().values():
        if name.endswith(suffixes):
            return Promise.BINARY if binary else Promise.TEXT
    return Promise.NOTHING if name == path.lower() else Promise.PACKED


def promises_rows(path: str) -> bool:
    """Whether a name says that there are rows in the file."""
    return promise(path) in (Promise.TEXT, Promise.BINARY)


def check_size(path: str, head: bytes) -> None:
    """Raise SourceError for a file of no bytes whose name is one of a packed or binary format.

    An empty file of text is an empty part. `head`: the first bytes, unpacked.
    """
    if head or (said := promise(path)) is Promise.NOTHING:
        return
    if said is Promise.BINARY or (_packed_name(path) and not _first_byte(path)):
        raise _broken(path, "is empty")


def check_format(path: str, head: bytes, found: str | None) -> None:
    """Raise SourceError for a file that is not what its name says. `found`: the source that takes it, or None."""
    said = promise(path)
    if said is Promise.BINARY:
        kept = found is not None and _known()[found][1]
    elif said is Promise.TEXT:
        kept = found is not None
    else:
        # Packed data of another kind is none of ours; what is not packed at all was something else once.
        kept = said is Promise.NOTHING or found is not None or _first_byte(path) != head[:1]
    if not kept:
        raise _broken(path, f"begins with {head[:16]!r}")


@functools.cache
def _known() -> dict[str, tuple[tuple[str, ...], bool]]:
    """Endings of each source, and whether it is binary."""
    found = {name: plugins.load("sources", name) for name in plugins.names("sources")}
    return {name: (plugin.SUFFIXES, getattr(plugin, "BINARY", False)) for name, plugin in found.items()}


def _packed_name(path: str) -> bool:
    return without_packing(path) != path.lower()


def _first_byte(path: str) -> bytes:
    with open_raw(path) as raw:
        return raw.peek(1)[:1]


def _broken(path: str, words: str) -> SourceError:
    return SourceError(
        "a prompt file that is not what its name says",
        value=f"{shown(path)}, which {words}",
        expected="by its ending, a file with rows: without them they would look like removed prompts",
        remedy="fetch or write the file again, or move it elsewhere if it is no part of the prompts",
    )
