"""The export: rows of sealed datasets as files that a trainer reads, checked by reading them back.

    datasets -> select -> train | validation -> order -> exporter's files -> read back -> export.json

In memory are a shard as it lies, buffers and one bucket (`spool`); between reading and
writing the examples lie in a temporary folder. `export.json` is the last write: a folder
without one is no export. Refuses a folder that is not empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from fsspec import AbstractFileSystem

from draftmill import plugins
from draftmill.errors import DatasetError
from draftmill.exporting.gathered import Gathered, gather
from draftmill.exporting.gathered import Order as Order
from draftmill.exporting.place import empty_place, writing
from draftmill.exporting.record import RECORD, FileRecord, PartRecord, record_bytes, write_counts
from draftmill.exporting.selection import Wish
from draftmill.exporting.sides import Side
from draftmill.exporting.sources import open_sources
from draftmill.exporting.tally import PartNumbers, PartTally
from draftmill.exporting.vocabulary import Vocabulary, vocabulary_of
from draftmill.progress import listener

HASHED_BYTES = 8 << 20
"""Of a file that are in memory to be hashed."""


@dataclass(frozen=True, slots=True)
class Exported:
    """`parts`: train, and validation where there is a split; `record`: what export.json says."""

    out: str
    parts: dict[str, PartRecord]
    record: dict[str, Any] = field(repr=False)


def export(
    urls: Sequence[str],
    out: str,
    *,
    to: str,
    wish: Wish | None = None,
    order: Order | None = None,
    weights: Sequence[float] = (),
) -> Exported:
    """Write the datasets' good rows for the trainer `to` into the folder or prefix `out`.

    Raises RecipeError for what is asked wrongly, DatasetError for a dataset that is damaged or files that are not read
    back as they were written.
    """
    wish, order = wish or Wish(), order or Order()
    exporter = plugins.load("exporters", to)
    sources = open_sources(urls, weights)
    folder = empty_place(out)
    vocabulary = vocabulary_of(sources[0].manifest)
    with writing(out), ExitStack() as stack:
        parts = {}
        for side, gathered in gather(sources, wish, order, stack).items():
            listener().stage(f"writing {side}: {gathered.spool.rows:,} rows")
            parts[side.value] = _write(exporter, folder, side, gathered, vocabulary)
        record = record_bytes(to=to, sources=sources, vocabulary=vocabulary, wish=wish, order=order, parts=parts)
        folder.pipe_file(RECORD, record.text)
    return Exported(out, parts, record.data)


def _write(
    exporter: Any, folder: AbstractFileSystem, side: Side, gathered: Gathered, vocabulary: Vocabulary
) -> PartRecord:
    """One part's files, checked against what went into them."""
    written = PartTally()
    paths = exporter.write(folder, side.value, written.passing(gathered.spool.examples()), vocabulary=vocabulary)
    listener().stage(f"reading {side} back")
    found = _read_back(exporter, folder, side)
    if found != written.numbers:
        raise DatasetError(
            f"what was exported is not read back as it was written ({', '.join(paths)})",
            value=f"{found}",
            expected=f"{written.numbers}",
            remedy="remove the folder and export again; if it happens again, see the disk or storage it lies on",
        )
    counts = write_counts(folder, side, written.counts)
    files = [_file(folder, path) for path in (*paths, counts)]
    return PartRecord(written.numbers, gathered.losses, files, written.counts)


def _read_back(exporter: Any, folder: AbstractFileSystem, side: Side) -> PartNumbers | str:
    """What the files have; in words why they cannot even be read."""
    found = PartTally()
    try:
        for ids_T, mask_T in exporter.read(folder, side.value):
            found.add(ids_T, mask_T)
    except (ValueError, KeyError, FileNotFoundError) as error:  # Arrow's and orjson's are ValueErrors
        return f"{type(error).__name__}: {error}"
    return found.numbers


def _file(folder: AbstractFileSystem, path: str) -> FileRecord:
    hashed, size = hashlib.sha256(), 0
    with folder.open(path, "rb") as file:
        while data := file.read(HASHED_BYTES):
            hashed.update(data)
            size += len(data)
    return FileRecord(path, size, hashed.hexdigest())
