"""Arrow batches as source rows: plain values, whatever the columns' types are.

Only columns that matter are turned into Python; the others are there as None,
so that their types never stop a row. Arrow gives every struct all keys that any
row has, null where the row had none: in nested values such nulls go, or a
template would print them. Dates, decimals and the like become text, bytes the
text they hold. A value that cannot be read is a fault of its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from draftmill.prompts.source_row import SourceRow

BATCH_ROWS = 256
"""Rows turned into Python at a time; at 100 kB a row that is 25 MB."""


FAULTS = (pa.ArrowException, ValueError, TypeError, ArithmeticError, MemoryError, NotImplementedError)
"""What pyarrow raises for bytes that are damaged. A wrong length asks for more memory than there is."""


@dataclass(frozen=True, slots=True)
class _Unreadable:
    words: str


def rows(batch: pa.RecordBatch, names: list[str], *, first: int) -> Iterator[SourceRow]:
    """The batch's rows, numbered from `first`. `names`: all columns of the file; those not in the batch are None."""
    empty = dict.fromkeys(names)
    found = {name: _values(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    for index in range(batch.num_rows):
        value = empty | {name: column[index] for name, column in found.items()}
        fault = next((f"{n}: {v.words}" for n, v in value.items() if isinstance(v, _Unreadable)), None)
        yield SourceRow(first + index, None if fault else value, fault)


def _values(column: pa.Array) -> list[Any]:
    try:
        values = column.to_pylist()
    except FAULTS:
        # One value does it (a date beyond Python's years, broken UTF-8): only its row pays.
        values = [_value(scalar) for scalar in column]
    return [_plain(value) for value in values]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except FAULTS as error:
        words = " ".join(str(error).split())
    try:
        return scalar.cast(pa.string()).as_py()
    except FAULTS:
        return _Unreadable(f"not readable: {words}")


def _plain(value: Any) -> Any:
    """What JSON could hold, and float NaN."""
    if value is None or isinstance(value, str | bool | int | float | _Unreadable):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            # A map: its pairs.
            return {str(key): _plain(item) for key, item in value if item is not None}
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return _text(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _text(value: bytes) -> Any:
    # Writers that do not mark text as text (Hive, Impala) give bytes.
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"bytes": value.hex()}
