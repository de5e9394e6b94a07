"""Which rows are audited."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftmill.audit.choose import evenly


@given(size=st.integers(0, 300), number=st.integers(1, 50))
def test_evenly_takes_that_many_different_rows_from_all_over(size: int, number: int) -> None:
    keys = [f"{n:04}" for n in range(size)]
    found = evenly(keys, number)
    assert len(found) == len(set(found)) == min(size, number)
    places = [-1, *(keys.index(key) for key in found), size]
    assert all(b - a <= size / min(number, size or 1) + 1 for a, b in pairwise(places))
