"""Supervised ids and how much of them a draft vocabulary has."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.exporting import counts
from draftmill.exporting.counts import IdCounts


def test_by_hand() -> None:
    found = IdCounts()
    found.add(np.array([5, 5, 1, 2, 1, 5], np.int32))
    found.add(np.array([2147483647], np.int32))
    assert found.to_table().to_pydict() == {"token_id": [5, 1, 2, 2147483647], "count": [3, 2, 1, 1]}
    assert (found.total, found.distinct) == (7, 4)
    assert [found.coverage(size) for size in (0, 1, 2, 4, 9)] == [0, 3 / 7, 5 / 7, 1, 1]
    assert found.curve() == [(1, 3 / 7), (2, 5 / 7), (3, 6 / 7), (4, 1.0)]


def test_coverage_may_be_asked_first() -> None:
    found = IdCounts()
    found.add(np.array([48, 48, 7], np.int32))
    assert found.coverage(1) == 2 / 3


def test_nothing_is_covered_whole() -> None:
    assert (IdCounts().coverage(8192), IdCounts().curve(), IdCounts().total) == (1.0, [], 0)


@given(rows=st.lists(st.lists(st.integers(0, 40), max_size=20)), at_once=st.integers(1, 30))
def test_it_counts_as_a_counter_does(rows: list[list[int]], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "COUNTED_AT_ONCE", at_once)
        found = IdCounts()
        for row in rows:
            found.add(np.array(row, np.int32))
    wanted = Counter(index for row in rows for index in row)
    table = found.to_table().to_pydict()
    assert dict(zip(table["token_id"], table["count"], strict=True)) == wanted
    assert table["count"] == sorted(table["count"], reverse=True)
    shares = [share for _, share in found.curve()]
    assert shares == sorted(shares)
