"""The ids: rows to show are taken out, and every supervised id is counted, in one pass over the objects to read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.arrays import Ids
from draftmill.dataset.schema import column_ids
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.exporting.counts import DRAFT_SIZES, IdCounts
from draftmill.exporting.masks import Mask
from draftmill.exporting.rows import sound_rows
from draftmill.reporting.page.data import Coverage

Request = tuple[str, int]
"""(row_key, attempt)."""

SHOWN = ("row_key", "prompt_id", "variant", "sample", "attempt", "prompt_len", "spans", "finish_reason")
"""What the page has of a row beside its ids."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """`columns`: SHOWN, and of quarantined rows reason and detail. Shape of `ids_T`: (T,)."""

    columns: dict[str, Any]
    ids_T: Ids

    @property
    def request(self) -> Request:
        return self.columns["row_key"], self.columns["attempt"]


def read_rows(
    storage: Storage, refs: Sequence[ObjectRef], wanted: Collection[Request], *, counts: IdCounts | None = None
) -> dict[Request, ShownRow]:
    """The wanted rows of these objects; `counts` takes all generated ids of good ones. Raises DatasetError."""
    more = () if counts is not None else ("reason", "detail")
    found: dict[Request, ShownRow] = {}
    keys = pa.array(sorted({key for key, _ in wanted}), pa.string())
    for table in sound_rows(storage, refs, [*SHOWN, *more, "input_ids"]):
        if counts is not None:
            counts.add(_generated(table))
        near = table.filter(pc.is_in(table["row_key"], value_set=keys)).combine_chunks()
        found |= {row.request: row for row in _rows(near) if row.request in wanted}
    return found


def coverage(counts: IdCounts) -> Coverage:
    """Of a draft vocabulary of the usual sizes."""
    at = [(size, counts.coverage(size)) for size in DRAFT_SIZES]
    return Coverage(Mask.COMPLETION.value, counts.total, counts.distinct, at, counts.curve())


def _rows(table: pa.Table) -> Iterator[ShownRow]:
    columns = table.drop_columns(["input_ids"]).to_pylist()
    for each, ids_T in zip(columns, column_ids(table["input_ids"]), strict=True):
        if ids_T is not None:
            yield ShownRow(each, ids_T.copy())  # not a view: it would hold its whole table


def _generated(table: pa.Table) -> Ids:
    """The ids inside the spans of all rows, one after the other."""
    ids, spans = table["input_ids"].combine_chunks(), table["spans"].combine_chunks()
    if not table.num_rows:
        return np.zeros(0, np.int32)
    offsets_B1 = ids.offsets.to_numpy()
    flat_T = ids.values.to_numpy()
    flat = pc.list_flatten(spans)
    of_row = pc.list_parent_indices(spans).to_numpy()
    steps_T = np.zeros(len(flat_T) + 1, np.int8)
    for name, step in (("start", 1), ("end", -1)):
        places = offsets_B1[of_row] + pc.struct_field(flat, name).to_numpy(zero_copy_only=False)
        np.add.at(steps_T, places, step)
    generated: Ids = flat_T[np.cumsum(steps_T[:-1], dtype=np.int8) > 0]
    return generated
