"""Lengths of any number of answers in the room of one array: exact mean and quantiles, and bins to plot.

Lengths are whole numbers up to a model's context, so how often each occurs is all
there is to keep. Bins are whole numbers wide: as wide as each other, or wider to the
right where the longest is many times the usual one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from draftmill.dataset.statistics import QUANTILES
from draftmill.reporting.page.data import LengthPlot

MAX_BINS = 60
"""As many as a plot has room for."""

LONG_TAIL = 8
"""Times the median that the longest must be for bins by the logarithm."""


class LengthCounts:
    """How often each length occurs."""

    def __init__(self) -> None:
        self._counts_L: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, lengths_B: npt.NDArray[np.int64]) -> None:
        """Count these. None is below 0."""
        found = np.bincount(lengths_B, minlength=len(self._counts_L)).astype(np.int64)
        found[: len(self._counts_L)] += self._counts_L
        self._counts_L = found

    @property
    def n(self) -> int:
        return int(self._counts_L.sum())

    def quantile(self, share: float) -> int:
        """The length that occurs at this rank (nearest rank); there must be one."""
        rank = math.ceil(share * self.n)
        return int(np.searchsorted(np.cumsum(self._counts_L), max(1, rank)))

    def plot(self) -> LengthPlot | None:
        """None where nothing was counted."""
        if not self.n:
            return None
        mean = float(self._counts_L @ np.arange(len(self._counts_L))) / self.n
        quantiles = {name: self.quantile(share) for name, share in QUANTILES.items()}
        return LengthPlot(self.n, round(mean, 2), quantiles, self._bins())

    def _bins(self) -> list[tuple[int, int, int]]:
        there = np.flatnonzero(self._counts_L)
        edges = _edges(int(there[0]), int(there[-1]), self.quantile(0.5))
        totals = np.concatenate([[0], np.cumsum(self._counts_L)])
        counts = np.diff(totals[np.minimum(edges, len(self._counts_L))])
        return [
            (int(low), int(high), int(count)) for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        ]


def _edges(shortest: int, longest: int, median: int) -> npt.NDArray[np.int64]:
    """From the shortest to behind the longest, ascending, at most MAX_BINS + 1."""
    end = longest + 1
    if longest > LONG_TAIL * max(1, median):
        steps = np.geomspace(max(1, shortest), end, MAX_BINS)
        return np.unique(np.concatenate([[shortest], np.round(steps).astype(np.int64)]))
    width = math.ceil((end - shortest) / MAX_BINS)
    return np.arange(shortest, end + width, width)
