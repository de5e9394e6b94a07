"""When each request of a run left and came back, and how many ids it brought: what a pilot's pace is measured by.

Packed arrays, 24 bytes a request: in memory for the run's length, written nowhere.
Only whole answers are here; requests that failed brought nothing that a pace could be
made of.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True)
class Flights:
    """Of the answers in the order they came: `sent_s`, `came_s` in monotonic seconds, `tokens` in ids of the output."""

    sent_s: array[float] = field(default_factory=lambda: array("d"))
    came_s: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[int] = field(default_factory=lambda: array("q"))

    def note(self, sent_s: float, came_s: float, tokens: int) -> None:
        """One answer."""
        self.sent_s.append(sent_s)
        self.came_s.append(came_s)
        self.tokens.append(tokens)

    def __len__(self) -> int:
        return len(self.tokens)
