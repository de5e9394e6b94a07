"""What a running command says while it works: stages, waits, rows.

The library reports to whatever listens (`listener`): the command line shows a
bar, a worker writes log lines, tests collect. Nothing here prints or sleeps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

LOG_EVERY_S = 30.0
"""Seconds between progress lines in a log: readable over a night of ten hours."""

log = logging.getLogger("draftmill.progress")


@dataclass(frozen=True, slots=True)
class Rows:
    """How far generation is: rows finished and to do, output tokens, seconds since the first request."""

    done: int
    total: int
    tokens: int
    elapsed_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None before the first row is done."""
        return (self.total - self.done) * self.elapsed_s / self.done if self.done else None


@dataclass(frozen=True, slots=True)
class ServerStanding:
    """How a server stands: `state` in words ("ok", "out for 20 s: ..."), requests in flight and how many it gets at
    most, rows it answered in this run, output tokens in them."""

    url: str
    state: str
    in_flight: int
    limit: int
    answers: int
    tokens: int


class Listener(Protocol):
    """Who is told."""

    def stage(self, text: str) -> None: ...
    def wait(self, text: str) -> None: ...
    def rows(self, rows: Rows) -> None: ...


class LogListener:
    """Log lines; rows, and waiting for the same thing, at most every LOG_EVERY_S."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._last_wait = ("", 0.0)

    def stage(self, text: str) -> None:
        log.info(text)

    def wait(self, text: str) -> None:
        # What is waited for is looked at every few seconds, for hours.
        words, now_s = text.split(";")[0], time.monotonic()
        last, said_s = self._last_wait
        if words != last or now_s - said_s >= LOG_EVERY_S:
            self._last_wait = (words, now_s)
            log.info(text)

    def rows(self, rows: Rows) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s < LOG_EVERY_S and rows.done < rows.total:
            return
        self._last_s = now_s
        left = "" if rows.left_s is None else f", about {rows.left_s / 60:.0f} min left"
        log.info("%d of %d rows, %.0f tokens/s%s", rows.done, rows.total, rows.tokens_per_s, left)


_LISTENER: ContextVar[Listener] = ContextVar("draftmill_listener")
_LOG = LogListener()


def listener() -> Listener:
    """Whoever listens to the running command; else the log."""
    return _LISTENER.get(_LOG)


@contextmanager
def listening(to: Listener) -> Iterator[None]:
    """Everything inside the block reports to `to`."""
    token = _LISTENER.set(to)
    try:
        yield
    finally:
        _LISTENER.reset(token)
