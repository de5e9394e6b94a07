"""Looks after the servers while rows are out: deadlines, silence, and the way back.

A request is given up when it takes far longer than its budget should at the
measured pace. A server is looked at over a new connection now and then, and more
often when it is silent: one whose port refuses will never answer what is in
flight, though the connections stay open (vLLM after SIGTERM); one that drains may.
A server that is out is looked at until it is well and its identity is the same as
before: it may come back with other weights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import aiohttp

from draftmill.generation.retry import rest_s
from draftmill.generation.servers import Flight, Server
from draftmill.progress import listener
from draftmill.records import Life, Pulse, Return, Returned, ServerReport
from draftmill.redaction import redacted, sent_key

QUIET_S = 15.0
"""Seconds without any answer before a server is looked at: while answers come, they are the proof of life."""

LOOK_EVERY_S = 30.0
"""Seconds between looks at a server that answers: one that drains goes on answering, and accepts what it will drop."""

GRACE_S = 5.0
"""Seconds between the first look that shows a server gone and giving up what is in flight there: it may still come."""

NO_TOKENS_S = 120.0
"""Seconds without one generated token, requests waiting, before an engine that says it is healthy counts as stuck."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Watch:
    """`look_again`: the gate's second look; `spawn`: runs a coroutine beside; `changed`: told when a server is back.

    `untold`: URL and rid of requests given up whose server has not heard of it yet.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        protocol: ModuleType,
        http: aiohttp.ClientSession,
        look_again: Callable[[ServerReport], Awaitable[Returned]],
        spawn: Spawn,
        changed: Callable[[], None],
    ) -> None:
        self._servers = servers
        self._protocol = protocol
        self._http = http
        self._look_again = look_again
        self._spawn = spawn
        self._changed = changed
        self.untold: set[tuple[str, str]] = set()
        self._looking: set[str] = set()
        self._doubted_s: dict[str, float] = {}

    def tick(self, now_s: float) -> None:
        """Called about once a second."""
        for server in self._servers:
            self._end_overdue(server, now_s)
            if server.out is None and server.flights and self._is_due(server, now_s):
                self._looking.add(server.url)
                self._spawn(self._look(server))

    def take_out(self, server: Server, why: str) -> None:
        """Nothing more is sent there until it is found well again; looks for that from now on."""
        if server.out is not None:
            return
        server.take_out(why, time.monotonic())
        listener().wait(f"{server.url} is taken out ({why}); its rows wait or go elsewhere, finished rows are kept")
        self._spawn(self._wait_for_return(server))

    def give_up(self, server: Server, flight: Flight, why: str) -> None:
        """Ends a request from our side and tells the server so, in case somebody still works on it."""
        if flight.give_up(why):
            self.untold.add((server.url, flight.rid))
            self._spawn(self._tell(server.url, flight.rid))

    async def _tell(self, url: str, rid: str) -> None:
        await self._protocol.abort(self._http, url, rid)
        self.untold.discard((url, rid))  # not in a `finally`: the pool's end may cancel this, and tells it then

    def _end_overdue(self, server: Server, now_s: float) -> None:
        for flight in list(server.flights.values()):
            deadline_s = server.pace.deadline_s(flight.sent.max_new_tokens)
            if flight.given_up is None and now_s - flight.sent_s > deadline_s:
                self.give_up(server, flight, f"no answer within {deadline_s:.0f} s")

    def _is_due(self, server: Server, now_s: float) -> bool:
        first_s = next(iter(server.flights.values())).sent_s
        every_s = QUIET_S if _is_quiet(server, now_s) else LOOK_EVERY_S
        return server.url not in self._looking and now_s - max(server.looked_s, first_s) > every_s

    async def _look(self, server: Server) -> None:
        try:
            pulse = await self._pulse(server)
            if server.out is None:
                self._note(server, pulse, time.monotonic())
        finally:
            self._looking.discard(server.url)

    async def _pulse(self, server: Server) -> Pulse:
        pulse: Pulse = await self._protocol.pulse(self._http, server.url)
        server.life = pulse.life
        return replace(pulse, words=redacted(pulse.words, sent_key(self._http)))

    def _note(self, server: Server, pulse: Pulse, now_s: float) -> None:
        """What a look at a server that is in use shows."""
        server.looked_s = now_s
        if pulse.life is Life.STUCK and not _is_quiet(server, now_s):
            return  # too busy with our rows to say that it is well
        if pulse.life is not Life.ALIVE:
            self._doubt(server, pulse, now_s)
            self.take_out(server, pulse.words)
            return
        server.heard_s = now_s
        if pulse.tokens is None or pulse.tokens != server.tokens:
            server.tokens, server.tokens_since_s = pulse.tokens, now_s
        elif now_s - server.tokens_since_s > NO_TOKENS_S:
            why = f"healthy by its own word, but not one token in {NO_TOKENS_S:.0f} s"
            self.take_out(server, why)
            self._give_up_all(server, why)

    def _doubt(self, server: Server, pulse: Pulse, now_s: float) -> None:
        """Gives up what is in flight once a server has been gone for a while; a draining one may still answer."""
        if pulse.life is Life.LEAVING:
            self._doubted_s.pop(server.url, None)
        elif now_s - self._doubted_s.setdefault(server.url, now_s) >= GRACE_S:
            self._give_up_all(server, pulse.words)

    def _give_up_all(self, server: Server, why: str) -> None:
        for flight in list(server.flights.values()):
            self.give_up(server, flight, why)

    async def _wait_for_return(self, server: Server) -> None:
        looks = 0
        while True:
            looks += 1
            await asyncio.sleep(rest_s(looks))
            pulse = await self._pulse(server)
            if pulse.life is not Life.ALIVE:
                server.last_words = pulse.words
                listener().wait(f"{server.url} is still out ({pulse.words}); looking again")
                self._doubt(server, pulse, time.monotonic())
                continue
            self._doubted_s.pop(server.url, None)
            returned = await self._look_again(server.report)
            if returned.state is Return.SAME:
                server.take_back(returned.report or server.report, time.monotonic())
                listener().stage(f"{server.url} is back")
                self._changed()
                return
            server.last_words = returned.words
            seen = "back as another server" if returned.state is Return.OTHER else "not well yet"
            listener().wait(f"{server.url} is {seen} ({returned.words}) and stays out")


def _is_quiet(server: Server, now_s: float) -> bool:
    return now_s - server.heard_s > QUIET_S
