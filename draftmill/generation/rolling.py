"""Finished rows judged while the run goes on, for the breaker.

By the same `judge` that decides about them later, a few at a time: one by one,
judging would cost as much as all else a row costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from draftmill.errors import RunStopped
from draftmill.generation.breaker import Breaker
from draftmill.recipe import Breaker as BreakerSetting
from draftmill.records import Completion, Failure, ServerReport, Verdict

JUDGED_AT_ONCE = 32
"""Finished rows judged together, at most an eighth of the breaker's window."""

Judge = Callable[[Sequence[Completion]], Sequence[Verdict]]


class Rolling:
    """The breaker and the rows that it has not seen yet."""

    def __init__(self, setting: BreakerSetting | Literal["off"], judge: Judge) -> None:
        self._judge = judge
        self._breaker = None if setting == "off" else Breaker(setting)
        self._at_once = 1 if setting == "off" else max(1, min(JUDGED_AT_ONCE, setting.window // 8))
        self._waiting: list[Completion] = []

    def push(self, completion: Completion) -> None:
        """One more finished row."""
        if self._breaker is not None:
            self._waiting.append(completion)
            if len(self._waiting) >= self._at_once:
                self.look()

    def look(self) -> None:
        """Judges those that wait."""
        finished, self._waiting = self._waiting, []
        if self._breaker is not None and finished:
            self._breaker.push([*zip(finished, self._judge(finished), strict=True)])

    def fail(self, failure: Failure) -> None:
        """One more row that got no answer; bad as any other."""
        if self._breaker is not None:
            self.look()
            self._breaker.fail(failure)

    def error(self, reports: Sequence[ServerReport]) -> RunStopped | None:
        """Why the run must stop; None while it need not."""
        return self._breaker.error(reports) if self._breaker is not None and self._breaker.tripped else None
