"""How many requests one server gets at once: halved when it refuses some, grown back while it answers.

Slow increase, multiplicative decrease under the recipe's ceiling, in the manner
of TCP. Pure: the clock is passed in. One round of refusals halves once, however
many requests of that round were refused.
"""

from __future__ import annotations

GROWTH_PER_ANSWER = 0.1
"""A round of answers allows a tenth more: back at the ceiling in seven rounds, and no second flood meanwhile."""


class Limiter:
    """The limit of one server; `ceiling` is the recipe's `engine.in_flight`."""

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self._limit = float(ceiling)
        self._quick_below = float(ceiling)
        self._halved_s = float("-inf")

    @property
    def limit(self) -> int:
        """Requests that may be in flight now, at least 1."""
        return int(self._limit)

    def refused(self, *, in_flight: int, sent_s: float, now_s: float) -> None:
        """The server was full (503, 429). `sent_s`: when that request left; `in_flight`: how many were out with it."""
        if self._halve(in_flight, sent_s, now_s):
            self._quick_below = self._limit

    def unreachable(self, *, in_flight: int, sent_s: float, now_s: float) -> None:
        """No connection: as a refusal, but what grows back does so at once, since it says nothing about a queue."""
        self._halve(in_flight, sent_s, now_s)

    def answered(self) -> None:
        """One answer: one more beside it while the server is only warming up again, else a tenth of one."""
        growth = 1.0 if self._limit < self._quick_below else GROWTH_PER_ANSWER
        self._limit = min(float(self.ceiling), self._limit + growth)
        self._quick_below = max(self._quick_below, self._limit)  # what it took once is no longer doubted

    def _halve(self, in_flight: int, sent_s: float, now_s: float) -> bool:
        # A request that left before the last halving was sent under the old limit and says nothing about this one.
        if sent_s <= self._halved_s:
            return False
        self._limit = max(1.0, min(self._limit, float(in_flight)) / 2)
        self._halved_s = now_s
        return True
