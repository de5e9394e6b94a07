"""What happens to the fake server as a whole: it freezes, dies, drains, comes back.

As a real 0.5.23 server was seen to do it. A stuck scheduler leaves the pages at
200 and requests hanging; `/health` takes its time to say 503. A dead engine
hangs like that for seconds, then every connection closes and the port refuses.
A draining server says 503 on `/health` at once, finishes what is in flight and
still accepts what comes, whose connections it resets when it goes.

In a test: `await fake.die(hang_s=1)`, `await fake.restart(card=...)` on the same
port. In a process: `POST /fake/die {"hang_s": 5}`, `/fake/drain`, `/fake/freeze
{"health_s": 20}`, `/fake/thaw`; it ends when it is gone, and to restart it is to
start it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from draftmill.serving.answers import Card
from draftmill.serving.facade import Facade
from draftmill.serving.protocol import Limits

HANG_S = 5.0
"""How long requests hang between an engine's death and the end of its connections (recorded)."""

HEALTH_S = 20.0
"""How long `/health` waits for a token before it says 503 (recorded)."""

SETTLE_S = 0.05
"""Time for the last answers to be written before a draining server closes its connections."""


class Mortal(Facade):
    """A facade that can freeze, die, drain and be restarted. `gone` is set when it died, drained or was closed."""

    def __init__(self, card: Card, limits: Limits, *, queue_limit: int | None = None) -> None:
        super().__init__(card, limits, queue_limit=queue_limit)
        self.gone = asyncio.Event()
        self._going = asyncio.Event()
        self._going.set()
        self._draining = False
        self._health_s = HEALTH_S
        self._end: asyncio.Task[None] | None = None

    async def going(self) -> None:
        """Returns at once, or never as long as it is frozen."""
        await self._going.wait()

    def freeze(self, *, health_s: float = HEALTH_S) -> None:
        """From now on nothing is finished, and `/health` says 503 after `health_s`."""
        self._health_s = health_s
        self._going.clear()

    def thaw(self) -> None:
        """Goes on as if nothing had been."""
        self._going.set()

    async def die(self, *, hang_s: float = HANG_S) -> None:
        """Hangs, then closes every connection and its port; returns when that is done."""
        self.freeze()
        await asyncio.sleep(hang_s)
        await self.cut()
        self.gone.set()

    async def drain(self) -> None:
        """Leaves when what is in flight now is done; what came later is reset. Returns when that is done."""
        self._draining = True
        if works := [flight.work for flight in self.flights.values() if flight.work is not None]:
            await asyncio.wait(works)
        await asyncio.sleep(SETTLE_S)
        await self.cut()
        self.gone.set()

    async def restart(self, *, card: Card | None = None, limits: Limits | None = None) -> None:
        """Starts anew on the same port, as another server if told so; kills the one that still runs."""
        await self.cut()
        self.card, self.limits = card or self.card, limits or self.limits
        self._slots = asyncio.Semaphore(self.card.slots)
        self._draining = False
        self.gone.clear()
        self.thaw()
        await self.open(self.port)

    async def healthy(self) -> bool:
        if self._draining:
            return False
        try:
            await asyncio.wait_for(self.going(), self._health_s)
        except TimeoutError:
            return False
        return not self._draining

    def abort(self, prefix: str, *, everything: bool) -> None:
        """A frozen engine hears of no abort, although the web layer answers 200."""
        if self._going.is_set():
            super().abort(prefix, everything=everything)

    def routes(self) -> list[web.RouteDef]:
        return [
            *super().routes(),
            web.post("/fake/freeze", self._told_to_freeze),
            web.post("/fake/thaw", self._told_to_thaw),
            web.post("/fake/die", self._told_to_die),
            web.post("/fake/drain", self._told_to_drain),
        ]

    async def _told_to_freeze(self, http: web.Request) -> web.StreamResponse:
        self.freeze(**await _options(http))
        return web.Response()

    async def _told_to_thaw(self, _: web.Request) -> web.StreamResponse:
        self.thaw()
        return web.Response()

    async def _told_to_die(self, http: web.Request) -> web.StreamResponse:
        return self._begin(self.die(**await _options(http)))

    async def _told_to_drain(self, _: web.Request) -> web.StreamResponse:
        return self._begin(self.drain())

    def _begin(self, end: Coroutine[Any, Any, None]) -> web.StreamResponse:
        """Answers first: the end would take this connection with it."""
        self._end = asyncio.ensure_future(end)
        return web.Response(status=202)


async def _options(http: web.Request) -> dict[str, float]:
    return await http.json() if http.can_read_body else {}
