"""The drift report as people see it: tests/golden/drift has what a terminal and Prefect's page show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.statistics import MEASURED, Statistics, statistics
from draftmill.dataset.status import Status
from draftmill.reporting.drift_report import DriftReport, drift_report, status_report
from draftmill.reporting.terminal import print_drift, print_status

GOLDEN = Path(__file__).parents[1] / "golden" / "drift"

RECIPE = {"variants": [{"name": "think", "share": 0.75}, {"name": "fast", "share": 0.25}]}
STRUCTURES = {"think": {"thinking": "opened_by_prompt"}, "fast": {"thinking": "closed_by_prompt"}}
BUDGET = 1000


def spread(number: int) -> int:
    """0 to 99, each once in a hundred numbers, in no order."""
    return number * 37 % 100


def answer(number: int, *, reasoning: int | None, loops: int) -> dict[str, Any]:
    """An answer with so much reasoning on average (None: it has none), cut at the budget; `loops` in a hundred loop."""
    thought = None if reasoning is None else reasoning // 2 + reasoning * spread(number) // 100
    if spread(number + 1) < 8 and thought is not None:
        thought = 2 * BUDGET
    content = 40 + spread(number + 50)
    length = min(content + (thought or 0) + 1, BUDGET)
    closed = 90 + thought - 1 if thought is not None and thought < BUDGET else None
    stopped = length < BUDGET
    span = {"start": 90, "end": 90 + length, "reasoning_end": closed}
    span |= {"finish_reason": "stop" if stopped else "length", "stop_id": 7 if stopped else None}
    reason = "degenerate" if spread(number + 2) < loops else None if stopped else "truncated"
    variant = "think" if reasoning is not None else "fast"
    return {"variant": variant, "prompt_key": f"{variant} {number}", "spans": [span], "reason": reason}


def night(manifest: int, *, reasoning: int, rows: int, loops: int = 1) -> Statistics:
    """Three in four think."""
    made = [answer(number, reasoning=reasoning if number % 4 else None, loops=loops) for number in range(rows)]
    table = pa.Table.from_pylist(made, schema=MEASURED)
    return statistics(table, manifest=manifest, structures=STRUCTURES, recipe=RECIPE)


LAST_NIGHT = night(3, reasoning=420, rows=1100)
THIS_NIGHT = night(4, reasoning=200, rows=1200, loops=7)


def report(**changes: Any) -> DriftReport:
    return drift_report(THIS_NIGHT, LAST_NIGHT, **{"truncated": 153, "apart": True, **changes})


def first_night() -> DriftReport:
    return drift_report(night(1, reasoning=200, rows=400), None, truncated=24, apart=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("second_night.txt", "\n".join(report().lines())),
        ("second_night.md", report().markdown("kimi-eagle3")),
        ("first_night.txt", "\n".join(first_night().lines())),
    ],
)
def test_what_people_see(name: str, text: str) -> None:
    assert text + "\n" == (GOLDEN / name).read_text(encoding="utf-8")


def test_warnings_come_before_the_numbers_on_the_page() -> None:
    page = report().markdown("d")
    assert page.index("**warning**") < page.index("favours short answers") < page.index("| rows |")


def test_every_row_of_the_page_is_a_table_row() -> None:
    tables = [line for line in report().markdown("d").splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {5}


@pytest.mark.parametrize(
    ("truncated", "apart", "words"),
    [
        (0, False, []),
        (0, True, ["favours short answers", "none was cut"]),
        (153, True, ["favours short answers", "153 rows", "1,000 ids where they were cut"]),
        (153, False, ["favours short answers", "153 rows"]),  # the rule is off now, and the rows are still there
    ],
)
def test_it_says_that_quarantining_cut_rows_favours_short_answers(
    truncated: int, apart: bool, words: list[str]
) -> None:
    notes = report(truncated=truncated, apart=apart).notes
    assert len(notes) == bool(words)
    assert all(word in notes[0] for word in words)


def test_status_shows_it_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status(
        "d",
        [],
        reasons={"truncated": 153},
        statistics=THIS_NIGHT,
        statistics_before=LAST_NIGHT,
        recipe={"on_truncated": "quarantine"},
    )
    assert status_report(status) == report()
    print_status(status, as_json=True)
    printed = capsys.readouterr()
    *lines, last = printed.out.splitlines()
    assert [line for line in lines if line.startswith("warning: variant think: mean reasoning length")]
    data = json.loads(last)
    assert (data["drift"]["manifest"], data["drift"]["compared_with"]) == (4, 3)
    assert data["drift"]["warnings"] == list(report().warnings)
    assert data["statistics"]["variants"]["think"]["rows"] == 900
    assert printed.err == ""


def test_status_without_statistics_is_silent_about_drift(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(Status("d", []), as_json=True)
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["drift"] is None
    assert "rows new" not in out


def test_a_runs_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_drift(["rows new in manifest 4", "warning: \x1b[2Jcleared"])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "rows new in manifest 4\nwarning: \\x1b[2Jcleared\n")
