"""A server's pace: the window's sums are those of the window, and what follows from them is ordered and bounded."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation import pace
from draftmill.generation.pace import LEAST_S, PATIENCE, UNMEASURED_S, UNMEASURED_S_PER_ID, Pace

WINDOW = 7
# Whole seconds: sums of them are exact, so that nothing is hidden in a tolerance.
answers = st.lists(st.tuples(st.integers(0, 10_000).map(float), st.integers(0, 5000)), max_size=40)
budgets = st.integers(1, 1_000_000)


def noted(number: list[tuple[float, int]]) -> Pace:
    with mock.patch.object(pace, "WINDOW", WINDOW):
        measured = Pace()
        for duration_s, num_ids in number:
            measured.note(duration_s, num_ids)
    return measured


@given(answers, budgets)
def test_all_is_as_if_computed_anew_from_the_last_answers(number: list[tuple[float, int]], budget: int) -> None:
    measured, window = noted(number), number[-WINDOW:]
    durations, ids = [duration_s for duration_s, _ in window], sum(num_ids for _, num_ids in window)
    assert measured.longest_s == max(durations, default=0)
    expected_s = UNMEASURED_S + UNMEASURED_S_PER_ID * budget
    if ids:
        expected_s = max(LEAST_S, PATIENCE * (sum(durations) / ids * budget + max(durations)))
    assert measured.deadline_s(budget) == pytest.approx(expected_s)
    if not window:
        assert measured.usual_s is None
        return
    usual_s = measured.usual_s
    assert usual_s in durations
    assert sum(duration_s <= usual_s for duration_s in durations) >= 0.95 * len(durations)


@given(answers, budgets, budgets)
def test_a_greater_budget_is_never_given_less_time(number: list[tuple[float, int]], one: int, other: int) -> None:
    measured = noted(number)
    small_s, great_s = measured.deadline_s(min(one, other)), measured.deadline_s(max(one, other))
    assert LEAST_S <= small_s <= great_s
    assert small_s >= PATIENCE * measured.longest_s or not sum(num_ids for _, num_ids in number[-WINDOW:])


def test_a_server_that_slows_down_gives_its_rows_longer() -> None:
    measured = noted([(10.0, 1000)] * WINDOW)
    quick_s = measured.deadline_s(10_000)
    for _ in range(WINDOW):
        measured.note(100.0, 1000)
    assert measured.deadline_s(10_000) > 5 * quick_s


def test_answers_without_ids_measure_nothing() -> None:
    assert noted([(3.0, 0)] * 4).deadline_s(100) == Pace().deadline_s(100) == UNMEASURED_S + UNMEASURED_S_PER_ID * 100


def test_one_row_in_twenty_may_be_slower_than_usual() -> None:
    measured = Pace()
    for duration_s in [1.0] * 95 + [900.0] * 5:
        measured.note(duration_s, 10)
    assert measured.usual_s == 900.0
    measured.note(1.0, 10)
    assert measured.usual_s == 1.0
    assert measured.longest_s == 900.0
