"""Lengths counted by hand, and what holds for any: nothing is lost in a bin, and there are never too many."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from draftmill.reporting.page.lengths import MAX_BINS, LengthCounts


def counted(*parts: list[int]) -> LengthCounts:
    counts = LengthCounts()
    for part in parts:
        counts.add(np.array(part, np.int64))
    return counts


def test_a_few_lengths_by_hand() -> None:
    plot = counted([3, 5, 3], [4, 9]).plot()
    assert plot is not None
    assert (plot.n, plot.mean, plot.quantiles) == (5, 4.8, {"p10": 3, "p50": 4, "p90": 9, "p99": 9})
    assert plot.bins == [(3, 4, 2), (4, 5, 1), (5, 6, 1), (6, 7, 0), (7, 8, 0), (8, 9, 0), (9, 10, 1)]


def test_none_counted_is_no_plot() -> None:
    assert counted([]).plot() is None


def test_a_long_tail_has_wider_bins_to_the_right() -> None:
    plot = counted([100] * 50 + [20_000]).plot()
    assert plot is not None
    widths = [high - low for low, high, _ in plot.bins]
    assert widths[-1] > 4 * widths[0]


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=200), st.integers(0, 200))
@example([0], 0)
@example([0, 100_000], 1)
@example([1] * 9 + [9], 3)
def test_every_length_is_in_one_bin(lengths: list[int], cut: int) -> None:
    plot = counted(lengths[:cut], lengths[cut:]).plot()
    assert plot is not None
    assert len(plot.bins) <= MAX_BINS
    assert [high for _, high, _ in plot.bins[:-1]] == [low for low, _, _ in plot.bins[1:]]
    assert [sum(low <= n < high for n in lengths) for low, high, _ in plot.bins] == [n for *_, n in plot.bins]
    assert sum(n for *_, n in plot.bins) == len(lengths)
    ranked = sorted(lengths)
    shares = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}
    assert plot.quantiles == {name: ranked[math.ceil(share * len(ranked)) - 1] for name, share in shares.items()}
