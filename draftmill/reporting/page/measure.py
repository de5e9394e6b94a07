"""What a manifest's rows are, in numbers: one pass over small columns of all its objects, in bounded memory.

The lengths are those of the manifest's statistics (dataset/statistics.py), of every
row instead of the new ones. No id is read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.scan import tables
from draftmill.dataset.schema import QUARANTINE
from draftmill.dataset.statistics import answers_of, lengths_of, opened_variants
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.dataset.stored import missing_object
from draftmill.reporting.page.arrivals import Arrivals
from draftmill.reporting.page.choice import Smallest
from draftmill.reporting.page.lengths import LengthCounts

COLUMNS = pa.schema(
    [
        QUARANTINE.field(name)
        for name in ("row_key", "variant", "attempt", "prompt_len", "spans", "finish_reason", "created_at", "reason")
    ]
)

GOOD_SHOWN, BAD_SHOWN = 10_000, 2_000
"""Good rows, and quarantined ones of a reason, that a page may show: more would not fit into it."""

PARTS = ("prompt", "reasoning", "content", "output")


@dataclass(slots=True)
class Measured:
    """Counts of rows, but for `lengths` (of answers). `finish`, `attempts`: by what a row has, the latter of good
    rows; `cut_in_reasoning` of `answering` rows, those whose lengths count. `good`, `bad`: rows that may be shown."""

    reasons: Counter[str] = field(default_factory=Counter)
    finish: Counter[str] = field(default_factory=Counter)
    attempts: Counter[int] = field(default_factory=Counter)
    cut_in_reasoning: int = 0
    answering: int = 0
    lengths: dict[str, LengthCounts] = field(default_factory=lambda: {part: LengthCounts() for part in PARTS})
    arrivals: Arrivals = field(default_factory=Arrivals)
    good: Smallest = field(default_factory=lambda: Smallest(GOOD_SHOWN))
    bad: dict[str, Smallest] = field(default_factory=dict)


def measure(storage: Storage, manifest: Manifest, *, readable: Collection[str]) -> Measured:
    """`readable`: paths of the objects whose rows may be shown. Raises DatasetError, also where an object is gone."""
    found, opened = Measured(), opened_variants(manifest.structures)
    for path, rows in _tables(storage, [*manifest.shards, *manifest.quarantine]):
        _count(found, rows, opened)
        if path in readable:
            _offer(found, rows)
    return found


def _tables(storage: Storage, refs: Sequence[ObjectRef]) -> Iterator[tuple[str, pa.Table]]:
    """Each object as COLUMNS; `reason` null for good rows."""
    scanned = tables(storage, [ref.path for ref in refs], COLUMNS)
    for ref in refs:
        try:
            table = next(scanned)
        except FileNotFoundError:
            raise missing_object(ref.path) from None
        if "reason" not in table.column_names:
            table = table.append_column(COLUMNS.field("reason"), pa.nulls(table.num_rows, pa.string()))
        yield ref.path, table.select(COLUMNS.names)


def _count(found: Measured, rows: pa.Table, opened: set[str]) -> None:
    is_good = pc.is_null(rows["reason"])
    found.reasons.update(rows["reason"].drop_null().to_pylist())
    found.finish.update(pc.fill_null(rows["finish_reason"], "none").to_pylist())
    found.attempts.update(rows["attempt"].filter(is_good).to_pylist())
    answers = answers_of(rows, opened)
    found.answering += answers["row"].nunique()
    found.cut_in_reasoning += answers.loc[answers["inside"], "row"].nunique()
    for part, lengths in lengths_of(answers).items():
        found.lengths[part].add(lengths.to_numpy().astype(np.int64))
    seconds = pc.divide(rows["created_at"].cast(pa.int64()), 1000).to_numpy()
    found.arrivals.add(seconds.astype(np.int64), _output_ids(rows))


def _offer(found: Measured, rows: pa.Table) -> None:
    """Rows that may be shown."""
    columns = [rows["row_key"], rows["attempt"], pa.chunked_array([pa.array(_ids(rows))])]
    for reason in rows["reason"].unique().to_pylist():
        of_it = pc.is_null(rows["reason"]) if reason is None else pc.equal(rows["reason"], reason)
        to = found.good if reason is None else found.bad.setdefault(reason, Smallest(BAD_SHOWN))
        to.add(*(column.filter(of_it) for column in columns))


def _output_ids(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Shape (B,): generated ids of each row."""
    start, end, of_row = _spans(rows)
    ids_B = np.zeros(rows.num_rows, np.int64)
    np.add.at(ids_B, of_row, end - start)
    return ids_B


def _ids(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Shape (B,): ids of each row, up to its last span's end."""
    _, end, of_row = _spans(rows)
    ids_B: npt.NDArray[np.int64] = rows["prompt_len"].to_numpy().astype(np.int64)
    np.maximum.at(ids_B, of_row, end)
    return ids_B


def _spans(rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(start, end, row) of every span."""
    spans = rows["spans"].combine_chunks()
    flat, of_row = pc.list_flatten(spans), pc.list_parent_indices(spans).to_numpy()
    start, end = (pc.fill_null(pc.struct_field(flat, name), 0).to_numpy() for name in ("start", "end"))
    return start.astype(np.int64), end.astype(np.int64), of_row
