"""The course of a run: how fast it was and how full its servers were, over time, in a few hundred numbers.

A run of ten minutes and one of three nights take the same room: when it is full,
every two points become one and the step doubles. Kept in the manifest's provenance,
so that a report can be made again when the run is long over. Pure: the clock is
passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STEP_S = 1.0
"""Seconds between two points at first."""

MAX_POINTS = 240
"""As many as a plot has room for."""

DIGITS = 2
"""Of a rate: a hundredth of an id a second."""


@dataclass(frozen=True, slots=True)
class _Point:
    """Up to `at_s`, since the point before it: ids and rows that came; requests in flight and their limit, on average
    over `looks`."""

    at_s: float
    tokens: int
    rows: int
    in_flight: float
    limit: float
    looks: int

    def joined(self, later: _Point) -> _Point:
        looks = self.looks + later.looks
        return _Point(
            later.at_s,
            self.tokens + later.tokens,
            self.rows + later.rows,
            (self.in_flight * self.looks + later.in_flight * later.looks) / looks,
            (self.limit * self.looks + later.limit * later.looks) / looks,
            looks,
        )


class Course:
    """What `note` is told, at any pace, as at most MAX_POINTS points."""

    def __init__(self) -> None:
        self._step_s = STEP_S
        self._began_s: float | None = None
        self._points: list[_Point] = []
        self._open: _Point | None = None
        self._last = (0, 0)

    def note(self, now_s: float, *, tokens: int, rows: int, in_flight: int, limit: int) -> None:
        """How it stands: ids and rows since the run began, requests in flight and how many there may be."""
        if self._began_s is None:
            self._began_s, self._last = now_s, (tokens, rows)
            return
        look = _Point(now_s - self._began_s, tokens - self._last[0], rows - self._last[1], in_flight, limit, 1)
        self._last = tokens, rows
        self._open = look if self._open is None else self._open.joined(look)
        if look.at_s - self._closed_s >= self._step_s:
            self._points.append(self._open)
            self._open = None
            self._make_room()

    def to_json(self) -> dict[str, Any] | None:
        """`{step_s, points: [[t_s, tokens_per_s, rows_per_s, in_flight, limit], ...]}`; None for a run that was over
        before the first point."""
        if not self._points:
            return None
        starts_s = [0.0, *(point.at_s for point in self._points)]
        points = [
            [
                round(number, DIGITS)
                for number in (
                    point.at_s,
                    point.tokens / (point.at_s - start_s),
                    point.rows / (point.at_s - start_s),
                    point.in_flight,
                    point.limit,
                )
            ]
            for start_s, point in zip(starts_s, self._points, strict=False)
        ]
        return {"step_s": self._step_s, "points": points}

    @property
    def _closed_s(self) -> float:
        return self._points[-1].at_s if self._points else 0.0

    def _make_room(self) -> None:
        if len(self._points) < MAX_POINTS:
            return
        self._points = [a.joined(b) for a, b in zip(self._points[::2], self._points[1::2], strict=True)]
        self._step_s *= 2
