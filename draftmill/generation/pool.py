"""The in-flight pool: rows of all chunks, one budget per server, granted in chunk order.

Each server has `in_flight` lanes; a lane takes the first row that waits, sends
it, and puts it back when it must be sent again (any lane, so perhaps another
server, takes it next). A chunk's last long answers therefore never leave lanes
idle: the next chunk's rows are already waiting (`opened`).

Promise: every row given to `ask` comes out once: as a completion that was
handed to the journal, as a failure, or as pending when the run was stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, Self

import aiohttp

from draftmill.errors import DraftmillError
from draftmill.generation.breaker import Breaker
from draftmill.generation.retry import Outcome, decide, rest_s
from draftmill.generation.stops import not_planned, stop_error, unknown_error
from draftmill.generation.tickets import Asked, Ticket
from draftmill.progress import Rows, listener
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Failure, Fault, FaultKind, Reason, Row

log = logging.getLogger("draftmill.generation")


class Keeper(Protocol):
    """Where completions go at once: the journal."""

    def put(self, completion: Completion) -> None: ...


@dataclass(slots=True)
class Counts:
    """Of the whole run: requests that reached a server (canaries excluded), those that were repeats, rows finished,
    output tokens."""

    requests: int = 0
    retries: int = 0
    done: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _Server:
    url: str
    engine: str
    refusals: int = 0
    down_since_s: float | None = None
    rests_until_s: float = 0.0


class Pool:
    """Sends rows. `judge` gives a finished row's reason (None = good) for the breaker.

    `engines` names each URL's engine as its report did, and is empty for a run
    that has only finished rows to seal; `num_rows` is what is to be asked in all,
    for progress.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        protocol: ModuleType,
        http: aiohttp.ClientSession,
        engines: dict[str, str],
        keeper: Keeper,
        judge: Callable[[Completion], Reason | None],
        num_rows: int,
    ) -> None:
        self.counts = Counts()
        self.stopped: DraftmillError | None = None
        self._recipe = recipe
        self._protocol = protocol
        self._http = http
        self._keeper = keeper
        self._judge = judge
        self._breaker = Breaker(recipe.breaker)
        self._num_rows = num_rows
        self._queue: asyncio.PriorityQueue[Ticket] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._unsent: dict[int, int] = {}
        self._changed = asyncio.Condition()
        self._turns = asyncio.Lock()
        self._servers = [_Server(url, engine) for url, engine in engines.items()]
        self._in_flight: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._halted = asyncio.Event()
        self._started_s: float | None = None

    async def __aenter__(self) -> Self:
        for server in self._servers:
            for _ in range(self._recipe.engine.in_flight):
                self._spawn(self._lane(server))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the lanes; what is still in flight is aborted on its server, so that no GPU works for nobody."""
        running = dict(self._in_flight)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._protocol.abort(self._http, url, rid) for rid, url in running.items()))

    @contextlib.asynccontextmanager
    async def opened(self, chunk: int, num_rows: int) -> AsyncIterator[None]:
        """A chunk's turn: waits, in the order of the calls, until the unsent rows fall below the budget.

        Its rows count as unsent from then on, before its Prefect task has even started.
        """
        budget = max(1, self._recipe.engine.in_flight * len(self._servers))
        async with self._turns, self._changed:
            await self._changed.wait_for(lambda: self.stopped or sum(self._unsent.values()) < budget)
            self._unsent[chunk] = num_rows
        try:
            yield
        finally:
            self._unsent.pop(chunk, None)
            await self._notify()

    async def ask(self, rows: list[Row], *, chunk: int) -> Asked:
        """All rows, each sent until it is answered, failed, or the run is stopped."""
        asked, settled = Asked(), asyncio.Event()
        tickets = [Ticket((chunk, next(self._numbers)), row, asked, settled, len(rows)) for row in rows]
        self._unsent[chunk] = len(rows)
        await self._notify()
        if tickets and not self._servers:
            self.stop(not_planned())
        for ticket in tickets:
            self._queue_or_settle(ticket)
        try:
            if tickets:
                await settled.wait()
        finally:
            for ticket in tickets:  # a cancelled call leaves nothing behind that would still be sent
                ticket.void = True
        return asked

    def stop(self, error: DraftmillError) -> None:
        """Sends nothing more. Rows in flight still finish; those that wait are pending."""
        if self.stopped:
            return
        self.stopped = error
        self._halted.set()
        while not self._queue.empty():
            self._queue.get_nowait().settle(None)
        self._spawn(self._notify())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _queue_or_settle(self, ticket: Ticket) -> None:
        if self.stopped:
            ticket.settle(None)
        else:
            self._queue.put_nowait(ticket)

    async def _lane(self, server: _Server) -> None:
        while True:
            ticket = await self._queue.get()
            if ticket.void:
                continue
            if (rest := server.rests_until_s - time.monotonic()) > 0:
                self._queue_or_settle(ticket)
                await asyncio.sleep(rest)
                continue
            await self._grant(ticket)
            if self.stopped:
                ticket.settle(None)
            else:
                await self._exchange(server, ticket)

    async def _exchange(self, server: _Server, ticket: Ticket) -> None:
        """One request and what follows. Whatever goes wrong here stops the run: a lane must not end in silence."""
        rid = uuid.uuid4().hex
        self._in_flight[rid] = server.url
        try:
            result = await self._send(server, ticket.row, rid)
            # Not in a `finally`: a cancelled request stays listed, for `__aexit__` to abort it.
            del self._in_flight[rid]
            self._count(ticket, result)
            self._handle(server, ticket, result)
        except DraftmillError as error:  # the journal cannot write: nothing more may be generated
            self.stop(error)
            ticket.settle(None)
        except Exception as error:
            log.error("the pool met an error it does not know", exc_info=error)
            self.stop(unknown_error(error))
            ticket.settle(None)

    def _count(self, ticket: Ticket, result: Answer | Fault) -> None:
        if isinstance(result, Fault) and result.kind is FaultKind.CONNECT:
            return
        self.counts.requests += 1
        self.counts.retries += ticket.sent > 0
        ticket.sent += 1

    async def _grant(self, ticket: Ticket) -> None:
        """A row's first turn: it is no longer one of its chunk's unsent rows."""
        chunk = ticket.order[0]
        if not ticket.granted and chunk in self._unsent:
            self._unsent[chunk] -= 1
            await self._notify()
        ticket.granted = True

    async def _send(self, server: _Server, row: Row, rid: str) -> Answer | Fault:
        self._started_s = self._started_s or time.monotonic()
        body = self._protocol.payload(row, self._recipe.sampling, rid=rid)
        try:
            # A redirect would make a GET of it, or show the key to another host.
            async with self._http.post(
                server.url + self._protocol.GENERATE, json=body, allow_redirects=False
            ) as answer:
                content = await answer.read()
                result: Answer | Fault = self._protocol.read(
                    answer.status, answer.headers, content, row=row, rid=rid, engine=server.engine
                )
                return result
        except (aiohttp.ClientConnectorError, TimeoutError) as error:  # the only timeout is that of connecting
            return Fault(FaultKind.CONNECT, str(error) or "the connection was not accepted in time")
        except (aiohttp.ClientError, OSError) as error:
            return Fault(FaultKind.RESET, f"{type(error).__name__}: {error}")

    def _handle(self, server: _Server, ticket: Ticket, result: Answer | Fault) -> None:
        if isinstance(result, Answer):
            server.refusals, server.down_since_s = 0, None
            self._finish(ticket, result)
            return
        self._note_reachability(server, result)
        ticket.tries += result.kind is not FaultKind.CONNECT
        engine = self._recipe.engine
        decision = decide(
            result, tries=ticket.tries, retries=engine.retries, down_s=self._all_down_s(), wait_s=engine.wait_s
        )
        match decision.outcome:
            case Outcome.WAIT:
                self._queue_or_settle(ticket)
            case Outcome.RETRY:
                self._spawn(self._later(ticket, decision.pause_s))
            case Outcome.FAIL_ROW if result.answer is not None:
                self._finish(ticket, result.answer)  # aborted to the last: quarantined by name, not lost
            case Outcome.FAIL_ROW:
                self._progress()
                ticket.settle(Failure(ticket.row, result.words, ticket.tries))
            case Outcome.STOP_RUN:
                self.stop(stop_error(server.url, result, engine.wait_s))
                ticket.settle(None)

    def _note_reachability(self, server: _Server, fault: Fault) -> None:
        if fault.kind is not FaultKind.CONNECT:
            server.refusals, server.down_since_s = 0, None
            return
        now_s = time.monotonic()
        if server.down_since_s is None:
            server.down_since_s = now_s
        if server.rests_until_s <= now_s:  # one rest per round of refusals, not per lane
            server.refusals += 1
            server.rests_until_s = now_s + rest_s(server.refusals)
            listener().wait(f"{server.url} is out of reach; finished rows are kept, trying again")

    def _all_down_s(self) -> float | None:
        """Seconds for which no server at all could be reached; None while one can be."""
        since_s = [server.down_since_s for server in self._servers if server.down_since_s is not None]
        return time.monotonic() - max(since_s) if len(since_s) == len(self._servers) else None

    async def _later(self, ticket: Ticket, pause_s: float) -> None:
        """A row's pause; a stopped run does not sit it out."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._halted.wait()
        self._queue_or_settle(ticket)

    def _finish(self, ticket: Ticket, answer: Answer) -> None:
        completion = Completion(ticket.row, answer)
        self._keeper.put(completion)
        self.counts.tokens += len(answer.output_ids)
        self._progress()
        self._breaker.push(self._judge(completion))
        if self._breaker.tripped:
            self.stop(self._breaker.error())
        ticket.settle(completion)  # last: what goes wrong above settles it as pending, and the journal has it

    def _progress(self) -> None:
        self.counts.done += 1
        elapsed_s = time.monotonic() - (self._started_s or time.monotonic())
        listener().rows(Rows(self.counts.done, self._num_rows, self.counts.tokens, elapsed_s))
