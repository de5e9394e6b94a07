"""The columns of every object in a dataset, and the doors between records and Arrow.

Tables are built from flat id arrays and offsets (`ListArray.from_arrays`): no
list of Python ints ever exists for a chunk. docs/dataset.md fixes SHARD; the others
are working objects and free to change with `FORMAT`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from draftmill.arrays import ID_DTYPE, Ids, flatten
from draftmill.records import Answer, Completion, HistoryMode, Row, Span

FORMAT = 3
"""Version of the working objects' columns; part of every cache key."""

IDS = pa.large_list(pa.int32())
"""Ids in working objects: 64-bit offsets, so that one table may hold more than 2^31 ids."""

SPAN = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("reasoning_end", pa.int32()),
        ("finish_reason", pa.string()),
        ("stop_id", pa.int32()),
    ]
)

LOADED = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("messages", pa.string()),  # JSON {"messages": [...], "tools": [...] or null}
    ]
)

REJECTED = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("source", pa.string()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("prompt_keys", pa.list_(pa.string())),  # see records.Rejection
    ]
)

ROW = pa.schema(
    [
        ("row_key", pa.string()),
        ("attempt", pa.int32()),
        ("prompt_key", pa.string()),
        ("prompt_id", pa.string()),
        ("variant", pa.string()),
        ("sample", pa.int32()),
        ("prompt_ids", IDS),
        ("max_new_tokens", pa.int32()),
        ("messages", pa.string()),
        ("source", pa.string()),
        ("history", pa.string()),  # these six: see records.Row
        ("earlier", pa.list_(pa.string())),
        ("conversation", pa.string()),
        ("room", pa.int32()),
        ("spans", pa.list_(SPAN)),
        ("whole", pa.string()),
        ("line", pa.int64()),  # of `source`
    ]
)

COMPLETION = pa.schema(
    [
        *ROW,
        ("output_ids", IDS),
        ("echo_ids", IDS),  # null: equal to prompt_ids
        ("prompt_tokens", pa.int32()),
        ("completion_tokens", pa.int32()),
        ("finish_type", pa.string()),
        ("finish_length", pa.int32()),
        ("matched", pa.string()),  # JSON: an id, a string or null
        ("engine", pa.string()),
        ("weight_version", pa.string()),
        ("created_at", pa.timestamp("ms", tz="UTC")),
    ]
)

SHARD = pa.schema(
    [
        ("row_key", pa.string()),
        ("prompt_key", pa.string()),
        ("prompt_id", pa.string()),
        ("variant", pa.string()),
        ("sample", pa.int32()),
        ("attempt", pa.int32()),
        ("input_ids", pa.list_(pa.int32())),
        ("prompt_len", pa.int32()),
        ("spans", pa.list_(SPAN)),
        ("reasoning_end", pa.int32()),
        ("max_new_tokens", pa.int32()),
        ("finish_reason", pa.string()),
        ("stop_id", pa.int32()),
        ("engine", pa.string()),
        ("weight_version", pa.string()),
        ("messages", pa.string()),
        ("source", pa.string()),
        ("created_at", pa.timestamp("ms", tz="UTC")),
    ]
)

QUARANTINE = pa.schema([*SHARD, ("reason", pa.string()), ("detail", pa.string())])


def ids_column(rows_of_ids: Iterable[Ids | None]) -> pa.Array:
    """Rows of ids as one large_list<int32> array; None stays null."""
    rows = list(rows_of_ids)
    flat, offsets_B1 = flatten(row if row is not None else np.zeros(0, ID_DTYPE) for row in rows)
    nulls = pa.array([row is None for row in rows], pa.bool_())
    return pa.LargeListArray.from_arrays(pa.array(offsets_B1), pa.array(flat), mask=nulls if rows else None)


def column_ids(column: pa.ChunkedArray) -> list[Ids | None]:
    """A list<int32> column as read-only views, one a row, without copying ids."""
    views: list[Ids | None] = []
    for chunk in column.chunks:
        flat = chunk.values.to_numpy(zero_copy_only=True)
        offsets = chunk.offsets.to_numpy()
        valid = chunk.is_valid().to_pylist()
        views += [flat[a:b] if ok else None for a, b, ok in zip(offsets[:-1], offsets[1:], valid, strict=True)]
    return views


def rows_table(rows: Sequence[Row]) -> pa.Table:
    """Rows as a ROW table."""
    return pa.table(_row_columns(rows), schema=ROW)


def table_rows(table: pa.Table) -> list[Row]:
    """A ROW table (or wider) as rows; ids are views into it."""
    columns = {name: _values(table, name) for name in ROW.names}
    return [row_of(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def row_of(values: dict[str, Any]) -> Row:
    """A row from the values of ROW's columns."""
    return Row(
        **{
            **values,
            "history": values["history"] and HistoryMode(values["history"]),
            "earlier": tuple(values["earlier"] or ()),
            "spans": tuple(Span(**span) for span in values["spans"] or ()),
        }
    )


def plain_value(row: Row, name: str) -> Any:
    """A row's value as a column other than ids holds it: lists, mappings and text."""
    value = getattr(row, name)
    if name == "spans":
        return [asdict(span) for span in value]
    return list(value) if name == "earlier" else value


def completions_table(completions: Sequence[Completion]) -> pa.Table:
    """Completions as a COMPLETION table."""
    answers = [completion.answer for completion in completions]
    columns = _row_columns([completion.row for completion in completions])
    for field in COMPLETION:
        if field.name in columns:
            continue
        values = [getattr(answer, field.name) for answer in answers]
        if field.type == IDS:
            columns[field.name] = ids_column(values)
        elif field.name == "matched":
            columns[field.name] = pa.array([json.dumps(value) for value in values], field.type)
        else:
            columns[field.name] = pa.array(values, field.type)
    return pa.table(columns, schema=COMPLETION)


def table_completions(table: pa.Table) -> list[Completion]:
    """A COMPLETION table as completions; ids are views into it."""
    names = [name for name in COMPLETION.names if name not in ROW.names]
    columns = {name: _values(table, name) for name in names}
    columns["matched"] = [json.loads(text) for text in columns["matched"]]
    answers = [Answer(**dict(zip(names, values, strict=True))) for values in zip(*columns.values(), strict=True)]
    return [Completion(row, answer) for row, answer in zip(table_rows(table), answers, strict=True)]


def _row_columns(rows: Sequence[Row]) -> dict[str, pa.Array]:
    return {
        field.name: ids_column([getattr(row, field.name) for row in rows])
        if field.type == IDS
        else pa.array([plain_value(row, field.name) for row in rows], field.type)
        for field in ROW
    }


def _values(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name)
    return column_ids(column) if pa.types.is_large_list(column.type) else column.to_pylist()
