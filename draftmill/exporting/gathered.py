"""The examples of an export, by part, on disk: what lies between reading the datasets and writing the files."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.arrays import Ids
from draftmill.dataset.schema import column_ids
from draftmill.errors import RecipeError
from draftmill.exporting.hashes import order_of, share_of
from draftmill.exporting.rows import sound_rows
from draftmill.exporting.selection import Losses, Selection, Wish, total
from draftmill.exporting.sides import COLUMNS as SIDE_COLUMNS
from draftmill.exporting.sides import Side, Sides
from draftmill.exporting.sources import Source
from draftmill.exporting.spool import BUCKET_IDS, Spool
from draftmill.progress import listener

COLUMNS = ("row_key", "prompt_id", "variant", "input_ids", "prompt_len", "spans", "reasoning_end")
"""What examples are made of."""

BYTES_AN_ID = 1.0
"""Of a shard on disk: ids below 2^17 compress to between 1 and 2 bytes, so that buckets come out small, not large."""


@dataclass(frozen=True, slots=True)
class Order:
    """`split`: share of the prompts that go to validation. `seed` None: rows in the datasets' order, one after the
    other; else shuffled, the same seed the same way."""

    split: float = 0.0
    seed: int | None = 0


@dataclass(frozen=True, slots=True)
class Gathered:
    """A part's examples, in their order, and what its rows lost on the way."""

    spool: Spool
    losses: Losses


def gather(sources: Sequence[Source], wish: Wish, order: Order, stack: ExitStack) -> dict[Side, Gathered]:
    """Train, and validation where there is a split. `stack` lets go of the temporary files.

    Raises DatasetError for a dataset that is damaged, RecipeError when nothing is left.
    """
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="draftmill-export-")))
    buckets = 1 if order.seed is None else _num_buckets(sources)
    sides = [Side.TRAIN, Side.VALIDATION] if order.split else [Side.TRAIN]
    spools = {side: stack.enter_context(closing(Spool(place / side, buckets=buckets))) for side in sides}
    selections = {side: Selection(wish) for side in sides}
    for source in sources:
        listener().stage(f"reading {source.url}, manifest {source.manifest.version}")
        side_of = Sides(order.split, source).side
        for row, ids_T in _rows(source, order):
            side = side_of(row)
            example = selections[side].example(row, ids_T, source.thinking[row["variant"]])
            if example is None:
                continue
            for copy in range(_copies(source.weight, example.row_key)):
                spools[side].add(order_of("order", order.seed, example.row_key, copy), example)
    if not any(spool.rows for spool in spools.values()):
        raise _nothing(sources, total(selection.losses for selection in selections.values()))
    return {side: Gathered(spools[side], selections[side].losses) for side in sides}


def _rows(source: Source, order: Order) -> Iterator[tuple[Mapping[str, Any], Ids]]:
    """A dataset's good rows, ids apart."""
    columns = sorted({*COLUMNS, *(SIDE_COLUMNS if order.split else ())})
    for table in sound_rows(source.storage, source.manifest.shards, columns):
        ids = column_ids(table["input_ids"])
        for row, ids_T in zip(table.drop_columns(["input_ids"]).to_pylist(), ids, strict=True):
            assert ids_T is not None, "a row has ids"
            yield row, ids_T


def _copies(weight: float, row_key: str) -> int:
    """How often a row stands in the export: a weight of 2.5 is two or three times, always the same for a row."""
    whole = math.floor(weight)
    return whole + (share_of("weight", row_key) < weight - whole)


def _num_buckets(sources: Sequence[Source]) -> int:
    size = sum(ref.bytes * source.weight for source in sources for ref in source.manifest.shards)
    return max(2, math.ceil(size / BYTES_AN_ID / BUCKET_IDS))


def _nothing(sources: Sequence[Source], losses: Losses) -> RecipeError:
    rows = sum(source.manifest.counts["good_rows"] for source in sources)
    dropped = ", ".join(f"{reason} {number}" for reason, number in sorted(losses.dropped.items()))
    return RecipeError(
        "there is nothing to export",
        value=f"{rows} good rows, of which none is left",
        expected="rows with supervised ids",
        remedy=f"see the mask, the maximal length and the weights: {dropped or 'no row was dropped'}",
    )
