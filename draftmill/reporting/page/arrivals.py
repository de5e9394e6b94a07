"""When rows were generated: rows and ids over time, in a bounded number of equal steps.

The clock is the rows' own (`created_at`), so it is there for every dataset, whoever
generated it and on how many machines. Steps double until all of them fit.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

MAX_STEPS = 240
"""As many as a plot has room for."""


class Arrivals:
    """Rows by the second they came in, then by two, four ..."""

    def __init__(self) -> None:
        self._step_s = 1
        self._rows: Counter[int] = Counter()
        self._ids: Counter[int] = Counter()

    def add(self, seconds_B: npt.NDArray[np.int64], ids_B: npt.NDArray[np.int64]) -> None:
        """Rows that came at these unix times, each with so many output ids."""
        steps, place, rows = np.unique(seconds_B // self._step_s, return_inverse=True, return_counts=True)
        ids = np.zeros(len(steps), np.int64)
        np.add.at(ids, place, ids_B)
        self._rows.update(dict(zip(steps.tolist(), rows.tolist(), strict=True)))
        self._ids.update(dict(zip(steps.tolist(), ids.tolist(), strict=True)))
        while self._rows and max(self._rows) - min(self._rows) >= MAX_STEPS:
            self._step_s *= 2
            self._rows, self._ids = _halved(self._rows), _halved(self._ids)

    def lines(self) -> list[tuple[int, int, int]]:
        """(unix time, rows, ids) of each step from the first to the last, those without rows among them."""
        if not self._rows:
            return []
        steps = range(min(self._rows), max(self._rows) + 1)
        return [(step * self._step_s, self._rows[step], self._ids[step]) for step in steps]


def _halved(counts: Counter[int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for step, number in counts.items():
        found[step // 2] += number
    return found
