"""How often each id is supervised: what a reduced draft vocabulary is chosen by.

EAGLE-3 drafters predict the few ids that cover nearly all of what the target
model writes. Which those are, and how much k of them cover, is counted here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.arrays import Ids

DRAFT_SIZES = (8192, 16384, 32768, 65536)
"""Ids of a draft vocabulary, as drafters are published with."""

CURVE_POINTS = 64
"""Of a curve people look at: sizes spaced evenly by their logarithm."""

TABLE = pa.schema([("token_id", pa.int32()), ("count", pa.int64())])


class IdCounts:
    """Supervised ids by number of occurrences."""

    def __init__(self) -> None:
        self._counts_V: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, ids_T: Ids) -> None:
        """Count these ids. Shape (T,), none below 0."""
        found_V = np.bincount(ids_T)
        if len(found_V) > len(self._counts_V):
            self._counts_V = np.pad(self._counts_V, (0, len(found_V) - len(self._counts_V)))
        self._counts_V[: len(found_V)] += found_V

    @property
    def total(self) -> int:
        return int(self._counts_V.sum())

    @property
    def distinct(self) -> int:
        return int(np.count_nonzero(self._counts_V))

    def to_table(self) -> pa.Table:
        """The ids that occur, the most frequent first; of equally frequent ones the lower id first."""
        order = self._order()
        return pa.table([pa.array(order, pa.int32()), pa.array(self._counts_V[order])], schema=TABLE)

    def coverage(self, size: int) -> float:
        """Share of all occurrences that the `size` most frequent ids have; 1.0 where nothing is counted."""
        covered = int(self._counts_V[self._order()[:size]].sum())
        return covered / self.total if self.total else 1.0

    def curve(self, points: int = CURVE_POINTS) -> list[tuple[int, float]]:
        """(size, coverage) at sizes from 1 to all the ids that occur."""
        if not self.total:
            return []
        sizes = np.unique(np.geomspace(1, self.distinct, points).round().astype(np.int64))
        shares = np.cumsum(self._counts_V[self._order()])[sizes - 1] / self.total
        return [(int(size), float(share)) for size, share in zip(sizes, shares, strict=True)]

    def _order(self) -> npt.NDArray[np.int64]:
        there = np.flatnonzero(self._counts_V)
        return there[np.argsort(-self._counts_V[there], kind="stable")]
