"""The export: rows of sealed datasets as files that a trainer reads, checked by reading them back.

    datasets -> select -> train | validation -> order -> exporter's files -> read back -> export.json

In memory are a shard as it lies, buffers and one bucket (`spool`); between reading and
writing the examples lie in a temporary folder. `export.json` is the last write: a folder
without one is no export. Refuses a folder that is not empty.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem

from draftmill import plugins
from draftmill.dataset.schema import column_ids
from draftmill.errors import DatasetError, RecipeError
from draftmill.exporting.examples import Example
from draftmill.exporting.hashes import order_of, share_of
from draftmill.exporting.place import empty_place, writing
from draftmill.exporting.record import RECORD, FileRecord, PartRecord, record_bytes, write_counts
from draftmill.exporting.rows import sound_rows
from draftmill.exporting.selection import Losses, Selection, Wish
from draftmill.exporting.sides import COLUMNS as SIDE_COLUMNS
from draftmill.exporting.sides import Side, Sides
from draftmill.exporting.sources import Source, open_sources
from draftmill.exporting.spool import BUCKET_IDS, Spool
from draftmill.exporting.tally import PartNumbers, PartTally
from draftmill.exporting.vocabulary import Vocabulary, vocabulary_of
from draftmill.progress import listener

COLUMNS = ("row_key", "prompt_id", "variant", "input_ids", "prompt_len", "spans", "reasoning_end")
"""What examples are made of."""

BYTES_AN_ID = 1.0
"""Of a shard on disk: ids below 2^17 compress to between 1 and 2 bytes, so that buckets come out small, not large."""

HASHED_BYTES = 8 << 20
"""Of a file that are in memory to be hashed."""


@dataclass(frozen=True, slots=True)
class Order:
    """`split`: share of the prompts that go to validation. `seed` None: rows in the datasets' order, one after the
    other; else shuffled, the same seed the same way."""

    split: float = 0.0
    seed: int | None = 0


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
        spools, losses = _spooled(sources, wish, order, stack)
        parts = {}
        for side, spool in spools.items():
            listener().stage(f"writing {side}: {spool.rows:,} rows")
            parts[side.value] = _write(exporter, folder, side, spool, vocabulary)
        record = record_bytes(
            to=to, sources=sources, vocabulary=vocabulary, wish=wish, order=order, losses=losses, parts=parts
        )
        folder.pipe_file(RECORD, record.text)
    return Exported(out, parts, record.data)


def _spooled(sources: Sequence[Source], wish: Wish, order: Order, stack: ExitStack) -> tuple[dict[Side, Spool], Losses]:
    """Every example, by side, on disk."""
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="draftmill-export-")))
    buckets = 1 if order.seed is None else _num_buckets(sources)
    wanted = [Side.TRAIN, Side.VALIDATION] if order.split else [Side.TRAIN]
    spools = {side: stack.enter_context(closing(Spool(place / side, buckets=buckets))) for side in wanted}
    selection = Selection(wish)
    columns = {*COLUMNS, *(SIDE_COLUMNS if order.split else ())}
    for source in sources:
        listener().stage(f"reading {source.url}, manifest {source.manifest.version}")
        sides = Sides(order.split, source)
        for row, example in _selected(source, selection, sorted(columns)):
            spool = spools[sides.side(row)]
            for copy in range(_copies(source.weight, example.row_key)):
                spool.add(order_of("order", order.seed, example.row_key, copy), example)
    if not any(spool.rows for spool in spools.values()):
        raise RecipeError(
            "there is nothing to export",
            value=f"{sum(source.manifest.counts['good_rows'] for source in sources)} good rows, of which none is left",
            expected="rows with supervised ids",
            remedy="see the mask and the maximal length: " + ", ".join(f"{k} {v}" for k, v in losses_of(selection)),
        )
    return spools, selection.losses


def losses_of(selection: Selection) -> list[tuple[str, int]]:
    """Dropped rows by reason, those there are."""
    return sorted(selection.losses.dropped.items())


def _selected(
    source: Source, selection: Selection, columns: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], Example]]:
    """A dataset's examples, each with its row (ids aside)."""
    for table in sound_rows(source.storage, source.manifest.shards, columns):
        ids = column_ids(table["input_ids"])
        for row, ids_T in zip(table.drop_columns(["input_ids"]).to_pylist(), ids, strict=True):
            assert ids_T is not None, "a row has ids"
            example = selection.example(row, ids_T, source.thinking[row["variant"]])
            if example is not None:
                yield row, example


def _copies(weight: float, row_key: str) -> int:
    """How often a row stands in the export: a weight of 2.5 is two or three times, always the same for a row."""
    whole = math.floor(weight)
    return whole + (share_of("weight", row_key) < weight - whole)


def _num_buckets(sources: Sequence[Source]) -> int:
    size = sum(ref.bytes * source.weight for source in sources for ref in source.manifest.shards)
    return max(2, math.ceil(size / BYTES_AN_ID / BUCKET_IDS))


def _write(exporter: Any, folder: AbstractFileSystem, side: Side, spool: Spool, vocabulary: Vocabulary) -> PartRecord:
    """One part's files, checked against what went into them."""
    written = PartTally()
    paths = exporter.write(folder, side.value, written.passing(spool.examples()), vocabulary=vocabulary)
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
    return PartRecord(written.numbers, files, written.counts)


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
