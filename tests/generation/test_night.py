"""`--until`: what a text means at a moment, and what may still be sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import RecipeError
from draftmill.generation.night import Night, night_until, parse_until, seal_reserve_s

EVENING = datetime(2026, 3, 10, 22, 30, 15)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("06:00", timedelta(hours=7, minutes=29, seconds=45)),
        ("6:00", timedelta(hours=7, minutes=29, seconds=45)),
        ("23:00", timedelta(minutes=29, seconds=45)),
        ("22:30", timedelta(hours=23, minutes=59, seconds=45)),
        ("90m", timedelta(minutes=90)),
        ("2h", timedelta(hours=2)),
        ("1h30m", timedelta(minutes=90)),
        ("45s", timedelta(seconds=45)),
        ("1h5s", timedelta(seconds=3605)),
    ],
)
def test_a_time_is_the_next_such_time_and_a_span_counts_from_now(text: str, after: timedelta) -> None:
    assert parse_until(text, EVENING) == EVENING + after
    assert parse_until(text, EVENING.replace(tzinfo=UTC)) == EVENING.replace(tzinfo=UTC) + after


REFUSED = ["", "24:00", "12:60", "1:2", "06:00:00", "06:00\n", "0m", "0h0m", "m", "90", "90 m", "-5m", "1.5h", "30m1h"]


@pytest.mark.parametrize("text", [*REFUSED, "99999h", "٦m", "tomorrow"])
def test_anything_else_is_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_until(text, EVENING)
    assert caught.value.exit_code == 2
    assert caught.value.value == repr(text)
    assert "06:00" in caught.value.expected


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(("day", "hours"), [(datetime(2026, 3, 28, 22), 7), (datetime(2026, 10, 24, 22), 9)])
def test_the_clock_change_of_a_night_is_counted(day: datetime, hours: int) -> None:
    night = night_until("06:00", now=day, now_s=1000.0)
    assert night.left_s(1000.0) == pytest.approx(hours * 3600 - 300)
    assert night_until("8h", now=day, now_s=0.0).left_s(0.0) == pytest.approx(8 * 3600 - 300)


@pytest.mark.parametrize(("span_s", "reserve_s"), [(4, 2), (10, 5), (60, 5), (1000, 20), (36000, 300)])
def test_the_reserve_for_sealing(span_s: float, reserve_s: float) -> None:
    assert seal_reserve_s(span_s) == reserve_s


def test_no_end_sends_always() -> None:
    night = night_until(None, now=EVENING, now_s=5.0)
    assert night.may_send(1e9, 1e9)
    assert night.left_s(1e9) is None


def test_a_row_that_could_not_finish_is_not_sent() -> None:
    night = Night(100.0, "90m")
    assert night.may_send(89.0, 10.0)
    assert not night.may_send(91.0, 10.0)
    assert night.may_send(99.0, None)
    assert not night.may_send(100.0, None)
    assert not night.may_send(100.0, 0.0)
    assert (night.left_s(91.0), night.left_s(101.0)) == (9.0, 0.0)


def test_its_error_says_what_to_do() -> None:
    error = night_until("06:00", now=EVENING, now_s=0.0).error()
    assert error.exit_code == 5
    assert error.value == "--until 06:00"
    assert "run the same command again" in error.remedy


@given(span=st.integers(1, 999_999), usual_s=st.none() | st.floats(0, 1e6), passed_s=st.floats(0, 2e6))
def test_what_is_sent_in_time_ends_before_the_time_given(span: int, usual_s: float | None, passed_s: float) -> None:
    night = night_until(f"{span}s", now=EVENING, now_s=0.0)
    left_s = night.left_s(0.0)
    assert left_s is not None
    assert span / 2 <= left_s < span
    if night.may_send(passed_s, usual_s):
        assert passed_s + (usual_s or 0.0) < span
