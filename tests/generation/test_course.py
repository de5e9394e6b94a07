"""The course of a run: what came adds up, whatever the pace and the duration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation.course import MAX_POINTS, Course


def test_two_seconds_by_hand() -> None:
    course = Course()
    course.note(50.0, tokens=0, rows=0, in_flight=0, limit=8)
    course.note(51.0, tokens=300, rows=2, in_flight=6, limit=8)
    course.note(53.0, tokens=400, rows=3, in_flight=4, limit=4)
    assert course.to_json() == {"step_s": 1.0, "points": [[1.0, 300.0, 2.0, 6.0, 8.0], [3.0, 50.0, 0.5, 4.0, 4.0]]}


def test_a_run_that_was_over_at_once_has_none() -> None:
    course = Course()
    course.note(50.0, tokens=0, rows=0, in_flight=0, limit=8)
    assert course.to_json() is None


@given(st.lists(st.tuples(st.floats(0.05, 40), st.integers(0, 9)), min_size=1, max_size=900))
def test_nothing_that_came_is_lost_but_the_last_step(looks: list[tuple[float, int]]) -> None:
    course, now_s, tokens = Course(), 1000.0, 0
    course.note(now_s, tokens=0, rows=0, in_flight=0, limit=1)
    told = [(0.0, 0)]
    for pause_s, came in looks:
        now_s, tokens = now_s + pause_s, tokens + 1000 * came
        course.note(now_s, tokens=tokens, rows=0, in_flight=came, limit=9)
        told.append((round(now_s - 1000.0, 2), tokens))
    found = course.to_json()
    if found is None:
        assert now_s - 1000.0 < 1.0
        return
    points = found["points"]
    assert len(points) < MAX_POINTS
    starts = [0.0, *(point[0] for point in points)]
    total = sum(rate * (end - start) for start, (end, rate, *_) in zip(starts, points, strict=False))
    at_end = dict(told)[points[-1][0]]
    assert total == pytest.approx(at_end, rel=0.02, abs=2)
    assert all(0 <= point[3] <= 9 and point[4] == 9 for point in points)
