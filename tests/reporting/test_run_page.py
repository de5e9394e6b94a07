"""A run in short: the likely cause first, one row for each reason, and what to do about what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.records import Reason
from draftmill.reporting.run_page import (
    Missing,
    fate,
    missing_headline,
    next_steps,
    reasons_table,
    summary_page,
)
from draftmill.reporting.summary import Summary

KEY = "5fd924625f6a" + "0" * 52


def numbers(*, sealed: bool = True, reasons: dict[str, int] | None = None, **rows: int) -> dict[str, Any]:
    summary = Summary("s3://nights/kimi", 12, sealed=sealed)
    summary.rows.update(rows)
    summary.reasons.update(reasons or {})
    return summary.to_json()


def test_a_line_a_reason_with_one_row_of_it() -> None:
    run = numbers(reasons={"truncated": 2, "prompt_too_long": 1, "request_failed": 5})
    missing = Missing(examples={"truncated": {"prompt_id": "p" * 500, "row_key": KEY, "detail": "cut at 64"}})
    lines = reasons_table(run, missing)
    assert [(line["reason"], line["rows"], line["these rows are"]) for line in lines] == [
        ("request_failed", 5, "failed: asked again"),
        ("truncated", 2, "quarantined"),
        ("prompt_too_long", 1, "rejected: never sent"),
    ]
    assert (lines[1]["row"], lines[1]["detail"]) == (KEY[:12], "cut at 64")
    assert len(lines[1]["one of them"]) < 100


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_fate(reason: Reason) -> None:
    assert fate(reason)


def test_the_likely_cause_is_what_most_failed_rows_were_told() -> None:
    run = numbers(failed=12)
    words = {"HTTP 500: out of memory": 9, "no connection: refused": 3}
    assert missing_headline(run, Missing(words=words)) == "9 of 12 failed rows: HTTP 500: out of memory"
    assert missing_headline(run, Missing(words=words, error="no server can be used")) == "no server can be used"
    assert missing_headline(numbers(pending=3), Missing()) == "0 rows failed, 3 were not asked"


def test_the_next_step_for_each_kind_of_missing_row() -> None:
    run = numbers(failed=12, pending=3, quarantined=2, rejected=1, reasons={"truncated": 2})
    steps = next_steps(run, Missing(examples={"truncated": {"row_key": KEY}}, words={"HTTP 500": 12}))
    assert [words.split(" rows ")[0] for words in steps] == ["12", "3", "2", "1"]
    assert "HTTP 500 (12)" in steps[0]
    assert f"draftmill show s3://nights/kimi {KEY[:12]}" in steps[2]
    assert "draftmill status s3://nights/kimi --rejected" in steps[3]
    assert next_steps(numbers(ok=4), Missing()) == ["Nothing: every planned row is in the dataset."]


def test_the_page_says_where_to_look() -> None:
    page = summary_page(
        numbers(ok=4), headline="Completed: 4 new rows", missing=Missing(), attempts={"0": 3, "1": 1}, plan=["plan: 4"]
    )
    for words in (
        "manifest 12",
        "`s3://nights/kimi/manifests/",
        "`s3://nights/kimi/README.md`",
        "`draftmill diff s3://nights/kimi 11 12`",
        "attempt 1 1",
        "```text\nplan: 4\n```",
    ):
        assert words in page
    unchanged = summary_page(numbers(sealed=False), headline="", missing=Missing(), attempts={}, plan=[])
    assert "unchanged" in unchanged
    assert "draftmill diff" not in unchanged
