"""The numbers of a run: whatever the receipts say, every planned row is in one place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import DatasetError
from draftmill.reporting.summary import ROW_COUNTS, Summary, add_chunk, check_closed, exit_code, planned_summary

few = st.integers(0, 50)


@st.composite
def chains(draw: st.DrawFn) -> dict[str, Any]:
    """A chunk and the receipts of its chain, as far as it came."""
    resumed, generated, failed, pending = (draw(few) for _ in range(4))
    cached = draw(st.booleans())
    if cached:  # only complete receipts are cached
        failed = pending = 0
    chunk = {"num_rows": resumed + generated + failed + pending}
    came = draw(st.sampled_from(["nowhere", "generated", "validated"]))
    quarantined = draw(st.integers(0, resumed + generated))
    return {
        "chunk": chunk,
        "opened": came != "nowhere" or draw(st.booleans()),
        "cached": cached and came != "nowhere",
        "generated": None
        if came == "nowhere"
        else {
            "resumed": resumed,
            "generated": generated,
            "failed": failed,
            "pending": pending,
            "tokens": {"prompt": 3 * generated, "output": 7 * generated},
        },
        "validated": {
            "ok": resumed + generated - quarantined,
            "quarantined": quarantined,
            "reasons": {"degenerate": quarantined} if quarantined else {},
        }
        if came == "validated" and resumed + generated
        else None,
    }


def plan_of(found: list[dict[str, Any]], kept: int, held: int, rejected: int) -> dict[str, Any]:
    to_do = sum(chain["chunk"]["num_rows"] for chain in found)
    return {
        "manifest": 4,
        "planned": kept + held + rejected + to_do,
        "kept": kept,
        "held": held,
        "carried": 2,
        "superseded": 1,
        "resumed": 0,
        "to_ask": to_do,
        "num_rejected": rejected,
        "rejected_reasons": {"prompt_invalid": rejected} if rejected else {},
        "dropped": {"path": "prompts/dropped.parquet", "rows": 1},
        "chunks": [chain["chunk"] for chain in found],
    }


def summary_of(found: list[dict[str, Any]], kept: int = 0, held: int = 0, rejected: int = 0) -> Summary:
    summary = planned_summary("dataset", plan_of(found, kept, held, rejected))
    summary.rows["generated"] = summary.rows["resumed"] = 0
    for chain in found:
        add_chunk(summary, **{"opened": True, **chain})
    return summary


@given(found=st.lists(chains(), max_size=6), kept=few, held=few, rejected=few)
def test_counts_close_whatever_the_receipts(found: list[dict[str, Any]], kept: int, held: int, rejected: int) -> None:
    summary = summary_of(found, kept, held, rejected)
    check_closed(summary)
    rows, numbers = summary.rows, summary.to_json()
    assert all(number >= 0 for number in rows.values())
    assert rows["resumed"] + rows["generated"] == rows["ok"] + rows["quarantined"]
    opened = sum(chain["opened"] for chain in found)
    assert opened == numbers["chunks"]["cached"] + numbers["chunks"]["run"]
    assert sum(numbers["reasons"].values()) == rows["rejected"] + rows["quarantined"] + rows["failed"]
    asked = [chain["generated"] for chain in found if chain["generated"] and not chain["cached"]]
    assert numbers["tokens"]["output"] == 7 * sum(generated["generated"] for generated in asked)
    bad = rows["quarantined"] or rows["failed"]
    assert exit_code(summary) == (5 if rows["pending"] else 3 if bad else 0)


@given(found=st.lists(chains(), min_size=1, max_size=3), name=st.sampled_from(["kept", "pending", "ok", "generated"]))
def test_a_row_too_many_is_noticed(found: list[dict[str, Any]], name: str) -> None:
    summary = summary_of(found)
    summary.rows[name] += 1
    with pytest.raises(DatasetError) as refused:
        check_closed(summary)
    assert "do not close" in refused.value.what


def test_a_plan_alone_says_what_would_be_asked() -> None:
    chain = {"chunk": {"num_rows": 5}}
    summary = planned_summary("d", plan_of([chain], kept=3, held=1, rejected=2))
    numbers = summary.to_json()
    check_rows = {
        name: numbers["rows"][name] for name in ("planned", "kept", "held", "rejected", "generated", "dropped")
    }
    assert check_rows == {"planned": 11, "kept": 3, "held": 1, "rejected": 2, "generated": 5, "dropped": 1}
    assert numbers["reasons"] == {"prompt_invalid": 2}


def test_the_json_has_the_contracts_fields() -> None:
    numbers = Summary("d", 1).to_json()
    assert list(numbers) == [
        "dataset", "manifest", "sealed", "reasons", "requests", "retries", "seconds", "rows", "tokens", "chunks",
    ]  # fmt: skip
    assert list(numbers["rows"]) == list(ROW_COUNTS)
    assert list(numbers["tokens"]) == ["prompt", "output"]
    assert list(numbers["chunks"]) == ["total", "cached", "run", "failed"]


def test_a_cached_chunk_was_asked_by_an_earlier_run() -> None:
    generated = {"resumed": 1, "generated": 4, "failed": 0, "pending": 0, "tokens": {"prompt": 9, "output": 9}}
    validated = {"ok": 5, "quarantined": 0, "reasons": {}}
    chain = {"chunk": {"num_rows": 5}, "cached": True, "generated": generated, "validated": validated}
    numbers = summary_of([chain]).to_json()
    assert (numbers["rows"]["resumed"], numbers["rows"]["generated"], numbers["tokens"]["output"]) == (5, 0, 0)


def test_a_chunk_that_did_not_reach_the_dataset_waits_for_the_next_run() -> None:
    generated = {"resumed": 1, "generated": 3, "failed": 1, "pending": 0, "tokens": {"prompt": 9, "output": 9}}
    chain = {"chunk": {"num_rows": 5}, "cached": False, "generated": generated, "validated": None}
    numbers = summary_of([chain]).to_json()
    assert (numbers["rows"]["pending"], numbers["rows"]["failed"], numbers["chunks"]["failed"]) == (4, 1, 1)
    assert numbers["reasons"] == {"request_failed": 1}
    # Counted now: the next run brings these rows back without a request.
    assert numbers["tokens"] == {"prompt": 9, "output": 9}


@pytest.mark.parametrize(
    ("rows", "rejudged_bad", "code"),
    [
        ({}, 0, 0),
        ({"ok": 5}, 0, 0),
        ({"held": 5, "rejected": 3}, 0, 0),
        ({"quarantined": 1}, 0, 3),
        ({"failed": 1}, 0, 3),
        ({}, 1, 3),
        ({"pending": 1, "failed": 1, "quarantined": 1}, 1, 5),
    ],
)
def test_exit_codes(rows: dict[str, int], rejudged_bad: int, code: int) -> None:
    summary = Summary("d", 1, rejudged_bad=rejudged_bad)
    summary.rows.update(rows)
    assert exit_code(summary) == code
