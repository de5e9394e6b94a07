"""How often each id is supervised: what a reduced draft vocabulary is chosen by.

EAGLE-3 drafters predict the few ids that cover nearly all of what the target
model writes. Which those are, and how much k of them cover, is counted here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.arrays import ID_DTYPE, Ids

DRAFT_SIZES = (8192, 16384, 32768, 65536)
"""Ids of a draft vocabulary, as drafters are published with."""

CURVE_POINTS = 64
"""Of a curve people look at: sizes spaced evenly by their logarithm."""

COUNTED_AT_ONCE = 4 << 20
"""Ids that wait to be counted: 16 MiB."""

COUNTED_BY_PLACE = 1 << 20
"""Ids below this, as every vocabulary of today has them, are counted in an array with a place for each; others are
sorted, which takes longer."""

TABLE = pa.schema([("token_id", pa.int32()), ("count", pa.int64())])


class IdCounts:
    """Supervised ids by number of occurrences. Memory: the distinct ids, and those that wait to be counted."""

    def __init__(self) -> None:
        self._ids: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._waiting: Ids = np.empty(COUNTED_AT_ONCE, ID_DTYPE)
        self._num_waiting = 0

    def add(self, ids_T: Ids) -> None:
        """Count these ids. Shape (T,)."""
        while len(ids_T):
            room = self._waiting[self._num_waiting :]
            taken = min(len(room), len(ids_T))
            room[:taken] = ids_T[:taken]
            self._num_waiting += taken
            ids_T = ids_T[taken:]
            if self._num_waiting == len(self._waiting):
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
        order = self._order()  # first: it takes in what waits
        covered = int(self._counts[order[:size]].sum())
        return covered / self.total if self.total else 1.0

    def curve(self, points: int = CURVE_POINTS) -> list[tuple[int, float]]:
        """(size, coverage) at sizes from 1 to all the ids that occur."""
        if not self.total:
            return []
        sizes = np.unique(np.geomspace(1, self.distinct, points).round().astype(np.int64))
        order = self._order()
        shares = np.cumsum(self._counts[order])[sizes - 1] / self.total
        return [(int(size), float(share)) for size, share in zip(sizes, shares, strict=True)]

    def _order(self) -> npt.NDArray[np.intp]:
        self._count()
        return np.argsort(-self._counts, kind="stable")

    def _count(self) -> None:
        """Takes in what waits. Ids stay ascending."""
        if not self._num_waiting:
            return
        found, times = _occurring(self._waiting[: self._num_waiting])
        self._num_waiting = 0
        self._ids, place = np.unique(np.concatenate([self._ids, found]), return_inverse=True)
        counts = np.zeros(len(self._ids), np.int64)
        np.add.at(counts, place, np.concatenate([self._counts, times]))
        self._counts = counts


def _occurring(ids_T: Ids) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The ids that occur, ascending, and how often each does. Shape (T,), not empty."""
    if ids_T.min() < 0 or ids_T.max() >= COUNTED_BY_PLACE:
        found, times = np.unique(ids_T, return_counts=True)
        return found.astype(np.int64), times.astype(np.int64)
    by_place = np.bincount(ids_T)
    occurring = np.flatnonzero(by_place)
    return occurring.astype(np.int64), by_place[occurring].astype(np.int64)
