"""What `engine.in_flight` and `sampling.max_new_tokens` should be, by what a pilot saw, and why. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from draftmill.pilot.measured import Measured
from draftmill.pilot.pace import Pace
from draftmill.pilot.servers import Servers
from draftmill.pilot.shares import wilson

SPARE = 1.1
"""Requests sent for each that a server runs: a place that is free then never waits for the next one's way."""

CUT_IS_MUCH = 0.01
"""The share of answers cut by length above which a larger budget is worth asking for."""

WIDE = 4
"""A budget so many times the longest answer is wider than any answer needs."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Of the recipe's `key`: what it is, what it should be (the same: leave it), and why."""

    key: str
    now: int
    better: int
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "now": self.now, "better": self.better, "why": self.why}


def in_flight_advice(servers: Servers, found: Measured, pace: Pace | None) -> Advice:
    """By what a server says it runs and holds at once; without that by how it slowed down under its load."""
    now = servers.in_flight
    held = servers.cache_places(found.prompt_n, found.tokens_n)
    limits = [number for number in (servers.running, held) if number]
    key = "engine.in_flight"
    if not limits:
        return Advice(key, now, now, f"the servers do not say how many requests they run at once{_gain(pace, servers)}")
    room = min(limits)
    words = []
    if servers.running:
        words.append(f"a server runs {servers.running:,} at once (max_running_requests)")
    if held:
        words.append(f"its cache holds about {held:,} such requests (max_total_num_tokens {servers.cache_ids:,})")
    better = math.ceil(room * SPARE)
    why = " and ".join(words)
    if now > better:
        return Advice(key, now, better, f"{why}: more only wait in its queue")
    if now < room:
        return Advice(key, now, better, f"{why}: it has room{_gain(pace, servers, room)}")
    return Advice(key, now, now, f"{why}: it is full, and little waits")


def _gain(pace: Pace | None, servers: Servers, room: int | None = None) -> str:
    """What twice as many would bring, at most `room`: no further, since a model knows only what it saw."""
    if pace is None or pace.load_s == 0:
        return ""
    more = min(2 * servers.in_flight, room or 2 * servers.in_flight)
    ratio = pace.tokens_per_s(more * servers.number) / pace.tokens_per_s(servers.in_flight * servers.number)
    return f"; by the pace seen, {more:,} would bring {ratio - 1:+.0%} tokens a second"


def budget_advice(found: Measured, *, budget: int, room: int) -> Advice:
    """By the answers cut by length. `budget`: the recipe's; `room`: the most that the context would leave."""
    key = "sampling.max_new_tokens"
    cut = wilson("cut", found.cut, found.answers)
    seen = f"{found.cut:,} of {found.answers:,} answers were cut by length ({cut.low:.1%} to {cut.high:.1%} of all)"
    if cut.share > CUT_IS_MUCH and budget < room:
        better = min(2 * budget, room)
        return Advice(key, budget, better, f"{seen}; raised later, only the rows that were cut are asked again")
    longest = f"the longest answer had {found.longest:,} ids"
    if not found.cut and found.longest and budget > WIDE * found.longest:
        better = max(256, 2 ** math.ceil(math.log2(2 * found.longest)))
        why = f"{seen}, {longest}: less is enough, and an answer in a loop ends sooner"
        return Advice(key, budget, min(budget, better), why)
    return Advice(key, budget, budget, f"{seen}; {longest}")
