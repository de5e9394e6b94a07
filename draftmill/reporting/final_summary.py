"""A run's numbers with what only the commit knows: what another run sealed in between.

A row that another run sealed counts as kept or held here, whichever way it
stands there; a row that this run kept and that left with another's seal is
pending: planned, and not in the dataset. So every planned row is still in
exactly one place, and good rows of the manifest = kept + ok + carried.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from draftmill.dataset.recount import Recount
from draftmill.dataset.tally import Tally
from draftmill.reporting.summary import Summary, check_closed


def final_summary(before: Summary, tally: Tally) -> Summary:
    """The numbers with what only the commit knows. Called at each try of a race, so it changes nothing in place.

    Raises DatasetError when they do not close.
    """
    rows, reasons = before.rows.copy(), before.reasons.copy()
    rows["superseded"], rows["dropped"] = tally.superseded, tally.dropped
    if tally.recount:
        _count_again(rows, reasons, tally.recount)
    for (reason, good_stands), number in tally.yielded.items():
        _yield(rows, reasons, reason, number, to="kept" if good_stands else "held")
    # Good rows that are neither kept nor new: their prompt is gone, or their successor or next attempt is not in.
    rows["carried"] = tally.good_rows - rows["kept"] - rows["ok"]
    summary = replace(before, rows=rows, reasons=+reasons, attempts=dict(tally.attempts))
    check_closed(summary)
    return summary


def _count_again(rows: Counter[str], reasons: Counter[str], found: Recount) -> None:
    """Another run sealed since the plan: rows that this run left as they were may have moved there, or left; rows that
    it did not get may have been answered."""
    answered = found.answered_good + found.answered_bad
    waiting = min(answered, rows["pending"])
    rows["pending"] += found.gone - waiting
    rows["failed"] -= answered - waiting
    reasons["request_failed"] -= answered - waiting
    rows["kept"] = found.kept + found.answered_good
    rows["held"] = found.held + found.answered_bad


def _yield(rows: Counter[str], reasons: Counter[str], reason: str | None, number: int, *, to: str) -> None:
    """Another run had these rows: its verdict stands."""
    rows["quarantined" if reason else "ok"] -= number
    if reason:
        reasons[reason] -= number
    resumed = min(number, rows["resumed"])
    rows["resumed"] -= resumed
    rows["generated"] -= number - resumed
    rows[to] += number
