"""The breaker alone: a pure rolling share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation.breaker import Breaker
from draftmill.recipe import Breaker as Setting
from draftmill.records import Reason

NOT_CLOSED, LOOP = Reason.REASONING_NOT_CLOSED, Reason.DEGENERATE


def pushed(setting: Setting | str, reasons: list[Reason | None]) -> Breaker:
    breaker = Breaker(setting)  # type: ignore[arg-type]
    for reason in reasons:
        breaker.push(reason)
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
    assert not pushed(setting, [NOT_CLOSED] * 4 + [None] * 2).tripped


def test_off_is_off() -> None:
    breaker = pushed("off", [NOT_CLOSED] * 1000)
    assert not breaker.tripped


def test_its_error_has_the_counts_the_bound_and_what_to_do() -> None:
    error = pushed(Setting(share=0.25, window=4), [LOOP, NOT_CLOSED, NOT_CLOSED, None]).error()
    assert error.value == "3 of the last 4 rows (reasoning_not_closed 2, degenerate 1)"
    assert "25%" in error.expected
    assert error.remedy
    assert error.exit_code == 5


@given(
    reasons=st.lists(st.sampled_from([None, None, NOT_CLOSED, LOOP]), max_size=40),
    window=st.integers(1, 10),
    share=st.sampled_from([0.01, 0.2, 0.5, 1.0]),
)
def test_it_trips_exactly_when_the_last_window_is_too_bad(
    reasons: list[Reason | None], window: int, share: float
) -> None:
    last = reasons[-window:]
    too_bad = len(last) == window and sum(reason is not None for reason in last) / window > share
    assert pushed(Setting(share=share, window=window), reasons).tripped == too_bad
