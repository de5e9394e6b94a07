"""Verdicts as working objects: what `judge` said of each completion of a chunk."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from draftmill.records import Completion, Reason, Verdict

FOLDER = "verdicts"

VERDICT = pa.schema(
    [
        ("row_key", pa.string()),
        ("attempt", pa.int32()),
        ("reason", pa.string()),  # null: ok
        ("detail", pa.string()),
        ("position", pa.int32()),
        ("reasoning_end", pa.int32()),
        ("stop_id", pa.int32()),
    ]
)


FIELDS = [name for name in VERDICT.names if name not in ("row_key", "attempt")]
"""Of a Verdict; its other fields are of stored rows only."""


def verdicts_table(completions: Sequence[Completion], verdicts: Sequence[Verdict]) -> pa.Table:
    """Verdicts, in the order of their completions, as a VERDICT table."""
    columns = {name: [getattr(verdict, name) for verdict in verdicts] for name in FIELDS}
    keys = {
        "row_key": [completion.row.row_key for completion in completions],
        "attempt": [completion.row.attempt for completion in completions],
    }
    return pa.table({**keys, **columns}, schema=VERDICT)


def table_verdicts(table: pa.Table) -> list[Verdict]:
    """A VERDICT table as verdicts."""
    columns = [table[name].to_pylist() for name in FIELDS]
    return [
        Verdict(Reason(reason) if reason is not None else None, *rest) for reason, *rest in zip(*columns, strict=True)
    ]
