"""What the fake server was asked and what it sent: one entry a `/generate` request, in the order of arrival.

Kept for 20,000 requests and more, so that a soak or a benchmark can be judged by
what the server saw: ids are held as arrays of 4 bytes each, and a page of the
log can be asked for by fields and from a number on.

    GET /fake/log?fields=rid,running_at,ended_at&after=1000
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import orjson

from draftmill.serving.protocol import GenerateRequest

IDS = "i"
"""Ids in memory: 32 bits, signed, as everywhere in draftmill."""

FIELDS = (
    "number",
    "rid",
    "started_at",
    "running_at",
    "ended_at",
    "fault",
    "status",
    "input_ids",
    "output_ids",
    "sampling_params",
)


@dataclass(slots=True)
class LogEntry:
    """One `/generate` request. `output_ids` as sent, faults included; times are seconds since the epoch.

    `running_at` None: it never got a slot. `status` None: nothing was answered (a reset, a hang, a client that went
    away).
    """

    number: int
    started_at: float = field(default_factory=time.time)
    rid: str | None = None
    sampling_params: dict[str, Any] | None = None
    fault: str | None = None
    status: int | None = None
    running_at: float | None = None
    ended_at: float | None = None
    _asked: array[int] | None = None
    _sent: array[int] | None = None

    @property
    def input_ids(self) -> list[int] | None:
        return None if self._asked is None else self._asked.tolist()

    @property
    def output_ids(self) -> list[int] | None:
        return None if self._sent is None else self._sent.tolist()

    def asks(self, request: GenerateRequest) -> None:
        """Notes what was asked."""
        self.rid, self.sampling_params = request.rid, request.sampling
        self._asked = array(IDS, request.asked_ids)

    def sends(self, ids: Sequence[int] | None) -> None:
        """Notes what is sent, before it is sent."""
        self._sent = None if ids is None else array(IDS, ids)


CURRENT: ContextVar[LogEntry] = ContextVar("current")
"""The entry of the request being answered: its engine runs in a task of its own and looks here."""


def as_json(log: Iterable[LogEntry], fields: Sequence[str] = FIELDS) -> bytes:
    """A list of objects with these fields; AttributeError for a field there is not."""
    return orjson.dumps([{name: getattr(entry, name) for name in fields} for entry in log])


def stats(log: Sequence[LogEntry]) -> dict[str, Any]:
    """Counts of `/generate` requests: all, unfinished, by fault, by status."""
    return {
        "generate": len(log),
        "in_flight": sum(entry.ended_at is None for entry in log),
        "faults": dict(Counter(entry.fault for entry in log if entry.fault is not None)),
        "statuses": dict(Counter(str(entry.status) for entry in log if entry.ended_at is not None)),
    }
