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

COUNTED_AT_ONCE = 4 << 20
"""Ids that wait to be counted: 16 MiB."""

TABLE = pa.schema([("token_id", pa.int32()), ("count", pa.int64())])


class IdCounts:
    """Supervised ids by number of occurrences. Memory: the distinct ids, and a few million that wait to be counted."""

    def __init__(self) -> None:
        self._ids: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._waiting: list[Ids] = []
        self._num_waiting = 0

    def add(self, ids_T: Ids) -> None:
        """Count these ids. Shape (T,)."""
        self._waiting.append(ids_T)
        self._num_waiting += len(ids_T)
        if self._num_waiting >= COUNTED_AT_ONCE:
            self._count()

    @property
    def total(self) -> int:
        self._count()
        return int(self._counts.sum())

    @property
    def distinct(self) -> int:
        self._count()
        return len(self._ids)

    def to_table(self) -> pa.Table:
        """The ids that occur, the most frequent first; of equally frequent ones the lower id first."""
        order = self._order()
        return pa.table([pa.array(self._ids[order], pa.int32()), pa.array(self._counts[order])], schema=TABLE)

    def coverage(self, size: int) -> float:
        """Share of all occurrences that the `size` most frequent ids have; 1.0 where nothing is counted."""
        covered = int(self._counts[self._order()[:size]].sum())
        return covered / self.total if self.total else 1.0

    def curve(self, points: int = CURVE_POINTS) -> list[tuple[int, float]]:
        """(size, coverage) at sizes from 1 to all the ids that occur."""
        if not self.total:
            return []
        sizes = np.unique(np.geomspace(1, self.distinct, points).round().astype(np.int64))
        shares = np.cumsum(self._counts[self._order()])[sizes - 1] / self.total
        return [(int(size), float(share)) for size, share in zip(sizes, shares, strict=True)]

    def _order(self) -> npt.NDArray[np.intp]:
        self._count()
        return np.argsort(-self._counts, kind="stable")

    def _count(self) -> None:
        """Takes in what waits. Ids stay ascending."""
        if not self._num_waiting:
            return
        found, times = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._waiting, self._num_waiting = [], 0
        self._ids, place = np.unique(np.concatenate([self._ids, found]), return_inverse=True)
        counts = np.zeros(len(self._ids), np.int64)
        np.add.at(counts, place, np.concatenate([self._counts, times]))
        self._counts = counts
