"""Stored rows under the present rules: which change sides or columns, without a request.

Facts about the exchange with the server (aborted, a wrong echo ...) are no
rules: what was quarantined for them stays there. Everything else is judged from
the ids, shard by shard, each checked against its hash: what changes sides is
written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.manifest import Manifest, ObjectRef
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import REQUESTS, object_keys, sound_table
from draftmill.records import OF_THE_EXCHANGE, Verdict

JudgeTable = Callable[[pa.Table], Sequence[Verdict | None]]
"""SHARD or QUARANTINE rows in, a verdict for each out; None: nothing can judge it now, it stays as it is."""


@dataclass(frozen=True, slots=True)
class Rejudged:
    """The rows whose verdict is another now, in their new objects.

    `to_good` and `to_bad` count those that change sides. The others stay on
    theirs with another reason, another end of the reasoning or another stop id.
    """

    good: list[ObjectRef]
    bad: list[ObjectRef]
    to_good: int
    to_bad: int


def rejudge(storage: Storage, manifest: Manifest, judge: JudgeTable) -> Rejudged:
    """Judges every row of a manifest anew and stores those whose verdict is another now. Raises DatasetError."""
    good: list[ObjectRef] = []
    bad: list[ObjectRef] = []
    counts = {"good": 0, "bad": 0}
    for ref, was_good in [*((r, True) for r in manifest.shards), *((r, False) for r in manifest.quarantine)]:
        table = sound_table(storage, ref)
        if not was_good:
            exchange = pc.is_in(table["reason"], pa.array(sorted(OF_THE_EXCHANGE), pa.string()))
            table = table.filter(pc.invert(exchange))
        to_good, to_bad = _changed(*_judged(table, judge(table)), was_good=was_good)
        for folder, rows, refs in (("shards", to_good, good), ("quarantine", to_bad, bad)):
            if rows.num_rows:
                refs.append(storage.put_table(folder, rows))
        counts["good"] += 0 if was_good else to_good.num_rows
        counts["bad"] += to_bad.num_rows if was_good else 0
    return Rejudged(good, bad, counts["good"], counts["bad"])


def moved_requests(storage: Storage, good: Sequence[ObjectRef], bad: Sequence[ObjectRef]) -> pa.Table:
    """The rows of a Rejudged's objects as REQUESTS: under these keys the old ones leave."""
    names = REQUESTS.names
    return pa.concat_tables(
        [object_keys(storage, good, good=True, columns=names), object_keys(storage, bad, good=False, columns=names)]
    )


def _judged(table: pa.Table, verdicts: Sequence[Verdict | None]) -> tuple[pa.Table, list[Verdict]]:
    """The rows that have a verdict, and their verdicts."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return table.filter(pa.array([verdict is not None for verdict in verdicts], pa.bool_())), known


def _changed(table: pa.Table, verdicts: Sequence[Verdict], *, was_good: bool) -> tuple[pa.Table, pa.Table]:
    """The rows with another verdict than they have: those good now (SHARD), those bad now (QUARANTINE)."""
    reasons = [None] * table.num_rows if was_good else table["reason"].to_pylist()
    spans = table["spans"].to_pylist()
    before = [(reason, [_end(span) for span in row]) for reason, row in zip(reasons, spans, strict=True)]
    now = [
        (verdict.reason and str(verdict.reason), [_end(span) for span in _with_ends(row, verdict)])
        for row, verdict in zip(spans, verdicts, strict=True)
    ]
    differs = [new != old for new, old in zip(now, before, strict=True)]
    judged = _with_verdicts(table, verdicts)
    to_good = pa.array([d and new[0] is None for d, new in zip(differs, now, strict=True)], pa.bool_())
    to_bad = pa.array([d and new[0] is not None for d, new in zip(differs, now, strict=True)], pa.bool_())
    return judged.filter(to_good).select(SHARD.names), judged.filter(to_bad)


def _with_verdicts(table: pa.Table, verdicts: Sequence[Verdict]) -> pa.Table:
    """The table with what a verdict decides: reason and detail, where the reasoning ends, what ended the turn."""
    spans = [_with_ends(row, verdict) for row, verdict in zip(table["spans"].to_pylist(), verdicts, strict=True)]
    columns = {name: table[name] for name in SHARD.names}
    columns["spans"] = pa.array(spans, SHARD.field("spans").type)
    columns["reasoning_end"] = pa.array([verdict.reasoning_end for verdict in verdicts], pa.int32())
    columns["stop_id"] = pa.array([verdict.stop_id for verdict in verdicts], pa.int32())
    columns["reason"] = pa.array([verdict.reason and str(verdict.reason) for verdict in verdicts], pa.string())
    columns["detail"] = pa.array([verdict.detail for verdict in verdicts], pa.string())
    return pa.table(columns, schema=QUARANTINE)


def _with_ends(spans: list[dict[str, Any]], verdict: Verdict) -> list[dict[str, Any]]:
    """A row's spans with the ends that a verdict gives them."""
    verdicts = [*verdict.earlier, verdict]
    return [
        {**span, "reasoning_end": judged.reasoning_end, "stop_id": judged.stop_id}
        for span, judged in zip(spans, verdicts, strict=True)
    ]


def _end(span: dict[str, Any]) -> tuple[int | None, int | None]:
    return span["reasoning_end"], span["stop_id"]
