"""The breaker: stops a run whose answers are mostly wrong before it costs a night.

Pure: verdicts are pushed in, one per finished row; `tripped` reads out. It looks
at the last `window` finished rows, and only once that many have finished.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal

from draftmill.errors import RunStopped
from draftmill.recipe import Breaker as BreakerSetting
from draftmill.records import Reason


class Breaker:
    """A rolling share of bad rows against the recipe's bound."""

    def __init__(self, setting: BreakerSetting | Literal["off"]) -> None:
        self._setting = setting
        self._last: deque[Reason | None] = deque(maxlen=None if setting == "off" else setting.window)

    def push(self, reason: Reason | None) -> None:
        """One more finished row: None for a good one."""
        if self._setting != "off":
            self._last.append(reason)

    @property
    def tripped(self) -> bool:
        if self._setting == "off" or len(self._last) < self._setting.window:
            return False
        return self._num_bad > self._setting.share * self._setting.window

    def error(self) -> RunStopped:
        """The reason to stop: the share seen, the commonest codes, the bound."""
        counts = Counter(reason for reason in self._last if reason is not None)
        commonest = ", ".join(f"{reason} {count}" for reason, count in counts.most_common(3))
        share = 0.0 if self._setting == "off" else self._setting.share
        return RunStopped(
            "the breaker stopped the run: too many bad answers",
            value=f"{self._num_bad} of the last {len(self._last)} rows ({commonest})",
            expected=f"at most {share:.0%} bad (recipe: breaker.share)",
            remedy="look at the quarantined rows with `draftmill status`; docs/reason-codes.md names likely causes",
        )

    @property
    def _num_bad(self) -> int:
        return sum(reason is not None for reason in self._last)
