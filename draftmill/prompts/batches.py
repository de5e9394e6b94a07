"""Rows on their way into Arrow: few are Python objects at a time, and the tables that come out are bounded.

The sizes of slices depend on the rows before them and never on how many there
will be: a source that grows at its end keeps its earlier slices, and with them
what is cached about them. They grow, so that a small source is one slice and a
million prompts are about a hundred.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from draftmill.dataset.schema import LOADED, REJECTED
from draftmill.records import Rejection

BATCH_ROWS = 8192
"""Rows held as Python objects before they become an Arrow batch."""

BATCH_CHARS = 2**23
"""The same in characters: prompts may have a megabyte each."""

SLICE_ROWS = 2_000
"""Prompts of the first slices: below that a task run costs more than its slice."""

SLICES_A_SIZE = 20
"""Slices after which they become twice as large."""

SLICE_ROWS_AT_MOST = 32_000
"""Prompts of the largest slice: a million are some ninety slices, and one fits into memory many times."""

SLICE_CHARS = 2**26
"""Characters after which a slice ends however few prompts it has: bounds memory for long prompts."""

REJECTS_ROWS = 100_000
"""Rejected rows in one object."""


class Columns:
    """Rows of a schema, collected as columns; `rows` and `chars` (of text, roughly its bytes) since the last `take`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = self.chars = 0
        self._schema = schema
        self._pending: list[tuple[Any, ...]] = []
        self._pending_chars = 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, row: tuple[Any, ...]) -> None:
        chars = sum(len(value) for value in row if isinstance(value, str))
        self._pending.append(row)
        self.rows += 1
        self.chars += chars
        self._pending_chars += chars
        if len(self._pending) >= BATCH_ROWS or self._pending_chars >= BATCH_CHARS:
            self._flush()

    def take(self) -> pa.Table:
        """All rows since the last time as one table."""
        self._flush()
        table = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches, self.rows, self.chars = [], 0, 0
        return table

    def _flush(self) -> None:
        if self._pending:
            values = zip(*self._pending, strict=True)
            columns = [pa.array(column, field.type) for column, field in zip(values, self._schema, strict=True)]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self._pending, self._pending_chars = [], 0


class Slices:
    """Prompts cut into slices; `total` prompts so far."""

    def __init__(self) -> None:
        self.total = 0
        self._columns = Columns(LOADED)
        self._cut = 0

    def add(self, prompt_id: str, source: str, line: int, canonical: str) -> None:
        self.total += 1
        self._columns.add((prompt_id, source, line, canonical))

    def take(self, *, rest: bool = False) -> pa.Table | None:
        """The slice that is full, or with `rest` what is there; None when there is none."""
        full = self._columns.rows >= slice_rows(self._cut) or self._columns.chars >= SLICE_CHARS
        if not full and not (rest and self._columns.rows):
            return None
        self._cut += 1
        return self._columns.take()


class Rejects:
    """Rejected rows in tables of REJECTS_ROWS; `total` so far."""

    def __init__(self) -> None:
        self.total = 0
        self._columns = Columns(REJECTED)

    def add(self, rejection: Rejection) -> None:
        self.total += 1
        self._columns.add(tuple(getattr(rejection, name) for name in REJECTED.names))

    def take(self, *, rest: bool = False) -> pa.Table | None:
        """As `Slices.take`."""
        if self._columns.rows < REJECTS_ROWS and not (rest and self._columns.rows):
            return None
        return self._columns.take()


def slice_rows(number: int) -> int:
    """Prompts in the slice of that number, from 0, unless they are long."""
    return min(SLICE_ROWS_AT_MOST, SLICE_ROWS << min(number // SLICES_A_SIZE, 30))
