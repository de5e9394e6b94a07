"""The numbers of a run that lost a race: each planned row in one place, and the good rows of the manifest add up.

Whatever a plan was made on, whatever another run made of it meanwhile, the numbers are those that counting row by
row gives.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.merge import Fate, merge
from draftmill.dataset.plan import SUCCESSION
from draftmill.dataset.recount import Recount, recount
from draftmill.dataset.stored import REQUESTS, STORED
from draftmill.dataset.tally import final_tally
from draftmill.errors import DatasetError
from draftmill.reporting.final_summary import final_summary
from draftmill.reporting.summary import Summary

LOOP = "degenerate"


@dataclass(frozen=True)
class Row:
    """One stored row: good, or bad for a loop."""

    key: str
    attempt: int
    good: bool


def table(rows: list[Row]) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in STORED.names}
    columns |= {
        "row_key": [hashlib.sha256(row.key.encode()).hexdigest() for row in rows],
        "attempt": [row.attempt for row in rows],
        "good": [row.good for row in rows],
        "reason": [None if row.good else LOOP for row in rows],
        "object": ["shards/x" if row.good else "quarantine/x" for row in rows],
    }
    return pa.table(columns, schema=STORED)


def keys(names: list[str]) -> pa.Array:
    return pa.array([hashlib.sha256(name.encode()).hexdigest() for name in names], pa.string())


def sealed(rows: list[Row], new: list[Row], dropped: list[Row]) -> list[Row]:
    """What stands after a seal."""
    left = table(dropped).select(REQUESTS.names)
    merged = merge(table(rows), table(new), dropped=left, succession=SUCCESSION.empty_table())
    return [row for row, fate in zip([*rows, *new], merged.rows["fate"], strict=True) if fate == Fate.STAYS]


@st.composite
def races(draw: st.DrawFn) -> dict[str, Any]:
    """A dataset, what a run plans and gets, and what another seals before it does."""
    names = [f"k{n}" for n in range(draw(st.integers(1, 6)))]
    before: list[Row] = []
    for name in names:
        for attempt in range(draw(st.integers(0, 2))):
            before = sealed(before, [Row(name, attempt, draw(st.booleans()))], [])
    planned = [name for name in names if draw(st.booleans())]
    top = {name: max((row.attempt for row in before if row.key == name), default=-1) for name in names}
    asked = [name for name in planned if top[name] == -1 or draw(st.booleans())]
    brought, failed, pending = [], [], []
    for name in asked:
        match draw(st.sampled_from(["brought", "failed", "pending"])):
            case "brought":
                brought.append(Row(name, top[name] + 1, draw(st.booleans())))
            case "failed":
                failed.append(name)
            case _:
                pending.append(name)
    # The other run: drops some, judges some anew, asks some again, and brings prompts of its own.
    others = before
    for name in [*names, "other"]:
        mine = [row for row in others if row.key == name]
        match draw(st.sampled_from(["nothing", "dropped", "judged", "asked", "asked twice"])):
            case "dropped":
                others = sealed(others, [], mine)
            case "judged":
                others = sealed(others, [Row(row.key, row.attempt, not row.good) for row in mine], mine)
            case "asked" | "asked twice" as how:
                first = max((row.attempt for row in mine), default=-1) + 1
                for attempt in range(first, first + (2 if how == "asked twice" else 1)):
                    others = sealed(others, [Row(name, attempt, draw(st.booleans()))], [])
            case _:
                pass
    return {
        "before": before,
        "others": others,
        "planned": planned,
        "asked": asked,
        "brought": brought,
        "failed": failed,
        "pending": pending,
    }


def run_summary(case: dict[str, Any]) -> Summary:
    """The numbers as the run has them before it seals."""
    summary = Summary("d", 1)
    untouched = [name for name in case["planned"] if name not in case["asked"]]
    good_before = {row.key for row in case["before"] if row.good}
    kept = sum(name in good_before for name in untouched)
    ok = sum(row.good for row in case["brought"])
    summary.rows.update(
        planned=len(case["planned"]),
        kept=kept,
        held=len(untouched) - kept,
        generated=len(case["brought"]),
        failed=len(case["failed"]),
        pending=len(case["pending"]),
        ok=ok,
        quarantined=len(case["brought"]) - ok,
    )
    summary.reasons.update({LOOP: len(case["brought"]) - ok, "request_failed": len(case["failed"])})
    return summary


def seal_race(case: dict[str, Any]) -> tuple[Summary, list[Row]]:
    """The final numbers, and the rows that stand."""
    stored, new = table(case["others"]), table(case["brought"])
    merged = merge(stored, new, dropped=REQUESTS.empty_table(), succession=SUCCESSION.empty_table())
    stays = pa.array((merged.rows["fate"] == Fate.STAYS).to_numpy())
    standing = [row for row, here in zip([*case["others"], *case["brought"]], stays.to_pylist(), strict=True) if here]
    again = recount(
        keys(case["planned"]),
        asked=keys(case["asked"]),
        brought=new,
        before=table(case["before"]),
        after=pa.concat_tables([stored, new]).filter(stays),
    )
    refs = [[SideRows(sum(row.good is side for row in standing))] for side in (True, False)]
    return final_summary(run_summary(case), final_tally(merged, *refs, again)), standing  # type: ignore[arg-type]


@dataclass(frozen=True)
class SideRows:
    """All that a tally wants of an object."""

    rows: int


def place_of(name: str, case: dict[str, Any], standing: list[Row]) -> str:
    """Where one planned row counts, by looking at it alone."""
    ours = {row.key: row for row in case["brought"]}
    rows = [row for row in standing if row.key == name]
    side = "kept" if any(row.good for row in rows) else "held"
    if name in ours:
        return ("ok" if ours[name].good else "quarantined") if is_ours(ours[name], case, standing) else side
    newest_before = max((row.attempt for row in case["before"] if row.key == name), default=-1)
    newest = max((row.attempt for row in rows), default=-1)
    if name in case["asked"]:
        # That it failed or waits is so only until another run has answered it.
        return side if newest > newest_before else "open"
    return side if rows else "open"


def is_ours(row: Row, case: dict[str, Any], standing: list[Row]) -> bool:
    request = (row.key, row.attempt)
    return row in standing and request not in {(other.key, other.attempt) for other in case["others"]}


@given(races())
def test_every_row_is_where_looking_at_it_alone_puts_it(case: dict[str, Any]) -> None:
    summary, standing = seal_race(case)
    rows = summary.rows
    places = Counter(place_of(name, case, standing) for name in case["planned"])
    assert {name: rows[name] for name in ("kept", "held", "ok", "quarantined")} == {
        name: places[name] for name in ("kept", "held", "ok", "quarantined")
    }
    assert rows["failed"] + rows["pending"] == places["open"]
    assert sum(row.good for row in standing) == rows["kept"] + rows["ok"] + rows["carried"]
    mine = {name for name in case["planned"] if place_of(name, case, standing) in ("kept", "ok")}
    assert rows["carried"] == sum(row.good and row.key not in mine for row in standing)
    assert rows["resumed"] + rows["generated"] == rows["ok"] + rows["quarantined"]
    assert summary.reasons[LOOP] == rows["quarantined"]
    assert summary.reasons["request_failed"] == rows["failed"]


def test_without_a_race_nothing_is_counted_again() -> None:
    case = {"before": [], "others": [], "planned": ["a"], "asked": ["a"], "brought": [Row("a", 0, True)]}
    summary, _ = seal_race({**case, "failed": [], "pending": []})
    assert (summary.rows["ok"], summary.rows["kept"], summary.rows["carried"]) == (1, 0, 0)


def test_numbers_that_do_not_close_are_refused() -> None:
    case = {"before": [], "others": [], "planned": ["a"], "asked": ["a"], "brought": [Row("a", 0, True)]}
    summary = run_summary({**case, "failed": [], "pending": []})
    merged = merge(table([]), table([]), dropped=REQUESTS.empty_table(), succession=SUCCESSION.empty_table())
    with pytest.raises(DatasetError, match="do not close"):
        final_summary(summary, final_tally(merged, [], [], None))  # a good row that no object has
    with pytest.raises(DatasetError, match="do not close"):
        final_summary(summary, final_tally(merged, [SideRows(1)], [], Recount(1, 0, 0, 0, 0)))  # type: ignore[list-item]
