"""Rows over time: every row in one step, however long it took."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftmill.reporting.page.arrivals import MAX_STEPS, Arrivals


def test_by_hand() -> None:
    arrivals = Arrivals()
    arrivals.add(np.array([100, 100, 103]), np.array([7, 1, 5]))
    assert arrivals.lines() == [(100, 2, 8), (101, 0, 0), (102, 0, 0), (103, 1, 5)]


def test_none() -> None:
    assert Arrivals().lines() == []


@given(st.lists(st.lists(st.integers(0, 10**7), max_size=20), max_size=5))
def test_nothing_is_lost(parts: list[list[int]]) -> None:
    arrivals, seconds = Arrivals(), [second for part in parts for second in part]
    for part in parts:
        arrivals.add(np.array(part, np.int64), np.array(part, np.int64))
    lines = arrivals.lines()
    assert len(lines) <= MAX_STEPS
    assert sum(ids for *_, ids in lines) == sum(seconds)
    step = lines[1][0] - lines[0][0] if len(lines) > 1 else None
    for at, rows, _ in lines:
        assert step is None or rows == sum(at <= second < at + step for second in seconds)
    assert sum(rows for _, rows, _ in lines) == len(seconds)
