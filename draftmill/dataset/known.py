"""What a plan compares, read from the storage: rendered rows, sealed rows, answered requests.

Each table is read column-wise and its keys become numbers before the next is read, so
that the text of a key is in memory once, however many rows have it. The keys stay
legible: they are dictionary columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from draftmill.dataset import completions
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.numbers import Texts
from draftmill.dataset.scan import tables
from draftmill.dataset.schema import ROW
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import SHARED, stored_keys

PLANNED = pa.schema(
    [
        *(ROW.field(name) for name in ("row_key", "prompt_key", "sample", "max_new_tokens", "earlier")),
        *((name, SHARED) for name in ("variant", "history")),
    ]
)
"""The columns of ROW that a plan needs."""


@dataclass(frozen=True, slots=True)
class Known:
    """`planned`: PLANNED, in source order, of slices of `num_rows` rows; `stored`: STORED; `generated`: GENERATED."""

    planned: pa.Table
    num_rows: Sequence[int]
    stored: pa.Table
    generated: pa.Table


def read_known(storage: Storage, manifest: Manifest | None, rows: Sequence[str]) -> Known:
    """What is known to a run whose rendered slices are `rows`. Raises FileNotFoundError for a slice that is gone."""
    keys = {"row_key": Texts(), "prompt_key": Texts()}

    def with_numbers(table: pa.Table) -> pa.Table:
        for name in keys.keys() & set(table.column_names):
            table = _with(table, name, keys[name].add(table[name]))
            # Arrow would keep what the text took.
            pa.default_memory_pool().release_unused()
        return table

    slices = [_shared(table) for table in tables(storage, rows, pa.schema([ROW.field(n) for n in PLANNED.names]))]
    num_rows = [table.num_rows for table in slices]
    found = [with_numbers(pa.concat_tables([PLANNED.empty_table(), *slices]).unify_dictionaries())]
    slices.clear()
    found.append(with_numbers(stored_keys(storage, manifest)))
    found.append(with_numbers(completions.generated(storage)))
    planned, stored, generated = (_legible(table, keys) for table in found)
    return Known(planned, num_rows, stored, generated)


def _shared(table: pa.Table) -> pa.Table:
    for name in ("variant", "history"):
        table = _with(table, name, table[name].dictionary_encode())
    return table


def _legible(table: pa.Table, keys: dict[str, Texts]) -> pa.Table:
    for name in keys.keys() & set(table.column_names):
        table = _with(table, name, pa.chunked_array([keys[name].column(table[name])]))
    return table


def _with(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)
