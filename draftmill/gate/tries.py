"""How long the gate waits, and how often it asks again: one accident must not cost a night.

What follows a fault is decided by the table of every row (`generation/retry`).
What another try may cure is tried a few times; what only time cures (a queue
that is full, a server that restarts) as long as the gate may wait. Nothing is
waited for behind the end of the night.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from draftmill.generation.night import NO_END, Night
from draftmill.generation.retry import OUTCOMES, Outcome
from draftmill.recipe import Engine
from draftmill.records import Fault

TRIES = 3
"""How often a question is asked while faults come that another try may cure."""

PAUSE_S = 2.0
"""Seconds between two tries."""

_CURABLE = frozenset({Outcome.RETRY_HERE, Outcome.RETRY_ELSEWHERE, Outcome.WAIT})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """`wait_s`: seconds that a server may take until it can be asked. Monotonic seconds: `until_s` when they are over,
    `ends_s` when the night is, infinity without an end."""

    wait_s: float
    until_s: float
    ends_s: float = math.inf

    def left_s(self) -> float:
        """Seconds that may still be waited, 0 when none."""
        return max(0.0, self.until_s - time.monotonic())

    def night_left_s(self) -> float:
        """Seconds of the night, 0 when it is over."""
        return max(0.0, self.ends_s - time.monotonic())

    def at_once(self) -> Patience:
        """The same night, and no waiting: only what another try may cure is tried again."""
        return replace(self, wait_s=0.0, until_s=-math.inf)


NOT_WAITING = Patience(0.0, -math.inf)
"""A look at what is there now."""


def patience_of(engine: Engine, night: Night = NO_END) -> Patience:
    """From now on: `engine.wait_s`, or what is left of the night when that is less."""
    now_s = time.monotonic()
    left_s = night.left_s(now_s)
    night_s = math.inf if left_s is None else left_s
    wait_s = min(engine.wait_s, night_s)
    return Patience(wait_s, now_s + wait_s, now_s + night_s)


async def tried(
    ask: Callable[[], Awaitable[T | Fault]], patience: Patience, *, heard: Callable[[Fault], None] | None = None
) -> T | Fault:
    """What `ask` gives, asked again while that may help. `heard`: is told the fault that is waited for."""
    tries = 0
    while isinstance(result := await ask(), Fault):
        outcome = OUTCOMES[result.kind]
        waits = outcome is Outcome.WAIT and patience.left_s() > 0
        tries += not waits
        if outcome not in _CURABLE or tries >= TRIES or patience.night_left_s() == 0:
            break
        if waits and heard is not None:
            heard(result)
        await asyncio.sleep(min(PAUSE_S, patience.night_left_s()))
    return result
