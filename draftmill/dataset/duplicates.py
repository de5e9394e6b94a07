"""Planned rows of a row_key that an earlier row has: rejected, with the place of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.scan import tables
from draftmill.dataset.schema import REJECTED, ROW
from draftmill.dataset.storage import Storage
from draftmill.records import Reason

PLACE = pa.schema([ROW.field(name) for name in ("prompt_id", "source", "line")])
"""Where a row comes from."""


def duplicate_rejections(storage: Storage, slices: Sequence[str], duplicates: Mapping[int, int]) -> pa.Table:
    """REJECTED rows for the duplicates (index of a planned row -> index of the first one) of these slices."""
    if not duplicates:
        return REJECTED.empty_table()
    places = pa.concat_tables(tables(storage, slices, PLACE))
    pairs = sorted(duplicates.items())
    again, first = (places.take(pa.array(column, pa.int64())) for column in zip(*pairs, strict=True))
    columns = {name: again[name] for name in PLACE.names}
    columns["reason"] = pa.repeat(Reason.DUPLICATE.value, len(pairs))
    columns["detail"] = _words(first)
    columns["prompt_keys"] = pa.nulls(len(pairs), REJECTED.field("prompt_keys").type)
    return pa.table({name: columns[name] for name in REJECTED.names}, schema=REJECTED)


def _words(first: pa.Table) -> pa.ChunkedArray:
    """file:line (id), without the line where the source has none."""
    line = pc.coalesce(pc.binary_join_element_wise(":", first["line"].cast(pa.string()), ""), "")
    return pc.binary_join_element_wise("the same ids as ", first["source"], line, " (", first["prompt_id"], ")", "")
