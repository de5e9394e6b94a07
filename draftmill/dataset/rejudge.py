"""Stored rows under the present rules: which change sides, without a request.

Facts about the exchange with the server (aborted, a wrong echo ...) are no
rules: what was quarantined for them stays there. Everything else is judged from
the ids, shard by shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.manifest import Manifest, ObjectRef
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.dataset.storage import Storage
from draftmill.records import OF_THE_EXCHANGE, Verdict

JudgeTable = Callable[[pa.Table], Sequence[Verdict]]
"""SHARD or QUARANTINE rows in, a verdict for each out."""


@dataclass(frozen=True, slots=True)
class Rejudged:
    """The rows that change sides or reason: their new objects, and their keys, under which the old ones leave.

    `to_good` and `to_bad` count those that change sides.
    """

    good: list[ObjectRef]
    bad: list[ObjectRef]
    moved: frozenset[tuple[str, int]]
    to_good: int
    to_bad: int


def rejudge(storage: Storage, manifest: Manifest, judge: JudgeTable) -> Rejudged:
    """Judges every row of a manifest anew and stores those whose verdict is another now."""
    good: list[ObjectRef] = []
    bad: list[ObjectRef] = []
    moved: set[tuple[str, int]] = set()
    counts = {"good": 0, "bad": 0}
    for ref, was_good in [*((r, True) for r in manifest.shards), *((r, False) for r in manifest.quarantine)]:
        table = storage.read_table(ref.path)
        if not was_good:
            exchange = pc.is_in(table["reason"], pa.array(sorted(OF_THE_EXCHANGE), pa.string()))
            table = table.filter(pc.invert(exchange))
        to_good, to_bad = _changed(table, judge(table), was_good=was_good)
        for folder, rows, refs in (("shards", to_good, good), ("quarantine", to_bad, bad)):
            if rows.num_rows:
                refs.append(storage.put_table(folder, rows))
                moved |= set(zip(rows["row_key"].to_pylist(), rows["attempt"].to_pylist(), strict=True))
        counts["good"] += to_good.num_rows
        counts["bad"] += to_bad.num_rows if was_good else 0
    return Rejudged(good, bad, frozenset(moved), counts["good"], counts["bad"])


def _changed(table: pa.Table, verdicts: Sequence[Verdict], *, was_good: bool) -> tuple[pa.Table, pa.Table]:
    """The rows that are good now and were not (SHARD), and those with a new reason (QUARANTINE)."""
    reasons = [verdict.reason and str(verdict.reason) for verdict in verdicts]
    before = [None] * table.num_rows if was_good else table["reason"].to_pylist()
    differs = [new != old for new, old in zip(reasons, before, strict=True)]
    judged = _with_verdicts(table, verdicts)
    to_good = judged.filter(pa.array([d and r is None for d, r in zip(differs, reasons, strict=True)], pa.bool_()))
    to_bad = judged.filter(pa.array([d and r is not None for d, r in zip(differs, reasons, strict=True)], pa.bool_()))
    return to_good.select(SHARD.names), to_bad.select(QUARANTINE.names)


def _with_verdicts(table: pa.Table, verdicts: Sequence[Verdict]) -> pa.Table:
    """The table with what a verdict decides: reason and detail, and where the reasoning ends."""
    ends = [verdict.reasoning_end for verdict in verdicts]
    spans = [
        [*row[:-1], {**row[-1], "reasoning_end": end}]
        for row, end in zip(table["spans"].to_pylist(), ends, strict=True)
    ]
    columns = {name: table[name] for name in SHARD.names}
    columns["reasoning_end"] = pa.array(ends, pa.int32())
    columns["spans"] = pa.array(spans, SHARD.field("spans").type)
    columns["reason"] = pa.array([verdict.reason and str(verdict.reason) for verdict in verdicts], pa.string())
    columns["detail"] = pa.array([verdict.detail for verdict in verdicts], pa.string())
    return pa.table(columns, schema=QUARANTINE)
