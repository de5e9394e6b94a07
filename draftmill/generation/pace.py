"""How fast one server answers, measured: what a row may take, and what rows usually take.

Pure: durations are passed in. Over a window of the last answers, so that it
follows a server that slows down as its batch fills.
"""

from __future__ import annotations

from collections import deque

WINDOW = 512
"""Answers looked back at."""

LEAST_S = 120.0
"""Seconds that any row is given: a server may compile, swap or sit behind a long prefill."""

PATIENCE = 4.0
"""A row is given up when it takes so many times what its budget should take at the measured pace."""

UNMEASURED_S = 600.0
"""Seconds that a row is given before any answer: the first requests of a cold server."""

UNMEASURED_S_PER_ID = 0.25
"""Seconds per id of its budget beside that: slower than any server that is worth its power."""

NEARLY_ALL = 0.95
"""The share of rows that `usual_s` speaks of."""


class Pace:
    """The last answers of one server: seconds and ids of each."""

    def __init__(self) -> None:
        self._answers: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._seconds = 0.0
        self._ids = 0
        self.longest_s = 0.0
        """The longest answer of the window, in seconds; 0 before the first."""

    def note(self, duration_s: float, num_ids: int) -> None:
        """One answer of `num_ids` ids that took `duration_s`, waiting in the server's queue included."""
        oldest_s, oldest_ids = self._answers[0] if len(self._answers) == WINDOW else (0.0, 0)
        self._answers.append((duration_s, num_ids))
        self._seconds += duration_s - oldest_s
        self._ids += num_ids - oldest_ids
        if duration_s >= self.longest_s:
            self.longest_s = duration_s
        elif oldest_s >= self.longest_s:
            self.longest_s = max(seconds for seconds, _ in self._answers)

    def deadline_s(self, budget: int) -> float:
        """Seconds after which a request for up to `budget` ids is given up."""
        if not self._ids:
            return UNMEASURED_S + UNMEASURED_S_PER_ID * budget
        # The mean pace holds the queue's time as well; short rows behind a long queue would make their own pace absurd.
        whole_s = self._seconds / self._ids * budget
        return max(LEAST_S, PATIENCE * (whole_s + self.longest_s))

    @property
    def usual_s(self) -> float | None:
        """Seconds within which nearly all rows were answered; None before the first."""
        if not self._answers:
            return None
        durations = sorted(duration_s for duration_s, _ in self._answers)
        return durations[min(len(durations) - 1, int(len(durations) * NEARLY_ALL))]
