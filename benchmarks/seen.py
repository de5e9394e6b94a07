"""What the fake server saw of a contestant: when each row came, ran and was answered.

The server's view is the one that counts: a GPU does not care what a client
calls its own overhead. Requests whose prompt is not one of the scenario's (a
gate's canary) are left out.
"""

from __future__ import annotations

import heapq
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

FIELDS = ("started_at", "running_at", "ended_at", "status", "input_ids")


@dataclass(frozen=True, slots=True)
class Seen:
    """Rows in the order of their arrival; times in seconds since the epoch."""

    first_at: float
    last_at: float
    service_s: tuple[float, ...]

    @property
    def rows(self) -> int:
        return len(self.service_s)

    @property
    def seconds(self) -> float:
        """From the first request to the last answer."""
        return self.last_at - self.first_at

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    def of_perfect(self, slots: int) -> float:
        """The run's time as a multiple of a perfect refill of `slots` slots: 1.0 leaves no slot idle for an instant."""
        return self.seconds / perfect_s(self.service_s, slots)


def perfect_s(service_s: Iterable[float], slots: int) -> float:
    """Seconds for rows of these lengths, when each slot takes the next row, in this order, the moment it is free."""
    free_at = [0.0] * slots
    for seconds in service_s:
        heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)


def read_log(url: str) -> list[dict[str, Any]]:
    """The fake's log, as far as it is needed here."""
    with urllib.request.urlopen(f"{url}/fake/log?fields={','.join(FIELDS)}") as answer:  # noqa: S310  our own loopback
        entries: list[dict[str, Any]] = orjson.loads(answer.read())
        return entries


def seen(log: Sequence[dict[str, Any]], prompts: Iterable[Sequence[int]]) -> Seen:
    """The log of a run that asked each of these prompts once. Raises ValueError for a run that did not."""
    wanted = {tuple(ids) for ids in prompts}
    entries = [entry for entry in log if tuple(entry["input_ids"] or ()) in wanted]
    entries.sort(key=lambda entry: entry["started_at"])
    if len(entries) != len(wanted) or any(entry["status"] != 200 for entry in entries):
        raise ValueError(f"{len(entries)} requests for {len(wanted)} rows, or one that was not answered")
    return Seen(
        first_at=entries[0]["started_at"],
        last_at=max(entry["ended_at"] for entry in entries),
        service_s=tuple(entry["ended_at"] - entry["running_at"] for entry in entries),
    )
