"""The breaker alone: a pure rolling share, and what it says when it trips."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.generation.breaker import Breaker
from draftmill.recipe import Breaker as Setting
from draftmill.records import Answer, Completion, Reason, Row, ServerReport, Verdict

NOT_CLOSED, LOOP = Reason.REASONING_NOT_CLOSED, Reason.DEGENERATE


def finished(number: int, reason: Reason | None, detail: str = "") -> tuple[Completion, Verdict]:
    row = Row(f"{number:064x}"[::-1], 0, "p", f"prompt-{number}", "default", 0, ids_array("ids", [1]), 8, None, "s")
    answer = Answer(ids_array("ids", [2]), None, 1, 1, "stop", None, 2, "sglang 0", None, datetime.now(UTC))
    return Completion(row, answer), Verdict(reason, detail, None, None, None)


def pushed(setting: Setting | str, reasons: list[Reason | None]) -> Breaker:
    breaker = Breaker(setting)  # type: ignore[arg-type]
    breaker.push([finished(number, reason, f"detail {number}") for number, reason in enumerate(reasons)])
    return breaker


def test_it_waits_for_a_full_window() -> None:
    setting = Setting(share=0.5, window=4)
    assert not pushed(setting, [NOT_CLOSED] * 3).tripped
    assert pushed(setting, [NOT_CLOSED] * 4).tripped


def test_the_bound_itself_is_allowed() -> None:
    setting = Setting(share=0.5, window=4)
    assert not pushed(setting, [NOT_CLOSED, NOT_CLOSED, None, None]).tripped
    assert pushed(setting, [NOT_CLOSED, NOT_CLOSED, LOOP, None]).tripped


def test_old_rows_leave_the_window() -> None:
    setting = Setting(share=0.5, window=4)
    assert not pushed(setting, [NOT_CLOSED] * 2 + [None] * 2 + [NOT_CLOSED] * 2).tripped


def test_off_is_off() -> None:
    assert not pushed("off", [NOT_CLOSED] * 1000).tripped


def test_once_tripped_it_stays_so_and_speaks_of_that_moment() -> None:
    breaker = pushed(Setting(share=0.5, window=2), [NOT_CLOSED, NOT_CLOSED, None, None, None])
    assert breaker.tripped
    assert "2 of the last 2" in breaker.error([]).what


@given(
    reasons=st.lists(st.sampled_from([None, None, NOT_CLOSED, LOOP]), max_size=40),
    window=st.integers(1, 10),
    share=st.sampled_from([0.01, 0.2, 0.5, 1.0]),
    batch=st.integers(1, 12),
)
def test_it_trips_exactly_when_some_window_is_too_bad_however_rows_are_batched(
    reasons: list[Reason | None], window: int, share: float, batch: int
) -> None:
    windows = [reasons[end - window : end] for end in range(window, len(reasons) + 1)]
    too_bad = any(sum(reason is not None for reason in rows) / window > share for rows in windows)
    breaker = Breaker(Setting(share=share, window=window))
    rows = [finished(number, reason) for number, reason in enumerate(reasons)]
    for start in range(0, len(rows), batch):
        breaker.push(rows[start : start + batch])
    assert breaker.tripped == too_bad


def report(**said: object) -> ServerReport:
    fields = dict.fromkeys(
        ("version", "model", "weight_version", "context_length", "max_prompt", "reasoning_parser", "auto_truncate")
    )
    return ServerReport(**{"url": "http://a:1", "name": "sglang", "facts": {}, **fields, **said})  # type: ignore[arg-type]


def test_its_error_has_counts_two_rows_the_bound_and_the_cause() -> None:
    breaker = pushed(Setting(share=0.25, window=5), [LOOP, NOT_CLOSED, None, NOT_CLOSED, NOT_CLOSED])
    error = breaker.error([report(reasoning_parser="kimi_k2")])
    assert error.what == "the breaker stopped the run: 4 of the last 5 rows are bad"
    assert str(error.value).split("\n") == [
        "reasoning_not_closed 3, degenerate 1",
        "            'prompt-3' (row 300000000000): reasoning_not_closed: detail 3",
        "            'prompt-4' (row 400000000000): reasoning_not_closed: detail 4",
    ]
    assert error.expected == "at most 25% bad (recipe: breaker.share, breaker.window)"
    assert "http://a:1 reports reasoning_parser 'kimi_k2'" in error.remedy
    assert error.exit_code == 5


@pytest.mark.parametrize(
    ("reasons", "quoted"),
    [
        ([NOT_CLOSED, LOOP], ["prompt-0", "prompt-1"]),
        ([LOOP, None, None, LOOP, LOOP], ["prompt-3", "prompt-4"]),
        ([LOOP, None, NOT_CLOSED, NOT_CLOSED], ["prompt-2", "prompt-3"]),
    ],
)
def test_the_rows_it_quotes_are_of_the_commonest_reasons_in_the_window(
    reasons: list[Reason | None], quoted: list[str]
) -> None:
    lines = str(pushed(Setting(share=0.7, window=2), reasons).error([]).value).split("\n")[1:]
    assert [line.split("'")[1] for line in lines] == quoted


def test_what_a_source_calls_its_prompts_cannot_forge_lines() -> None:
    completion, verdict = finished(0, LOOP)
    named = replace(completion.row, prompt_id="x\n  to do: nothing" + "y" * 900)
    breaker = Breaker(Setting(share=0.5, window=1))
    breaker.push([(replace(completion, row=named), verdict)])
    lines = str(breaker.error([]).value).split("\n")
    assert len(lines) == 2
    assert len(lines[1]) < 200
