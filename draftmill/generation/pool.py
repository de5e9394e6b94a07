"""The in-flight pool: rows of all chunks, one budget per server, granted in chunk order.

Whenever a server has room, the first row that waits goes to the one with the
fewest requests in flight; a row that must be sent again waits with the others, at
its old place. A chunk's last long answers therefore never leave a server idle: the
next chunk's rows are already waiting (`opened`).

Promise: every row given to `ask` comes out once: as a completion that was
handed to the journal, as a failure, or as pending when the run was stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, Self

import aiohttp

from draftmill.errors import DraftmillError
from draftmill.generation.continuing import first_request, goes_on, joined
from draftmill.generation.course import Course
from draftmill.generation.exchange import answer_of
from draftmill.generation.flights import Flights
from draftmill.generation.night import NO_END, Night
from draftmill.generation.retry import Outcome, decide
from draftmill.generation.rolling import Judge, Rolling
from draftmill.generation.servers import Flight, Server, all_troubled_s, choose
from draftmill.generation.stops import all_gone, not_planned, refused, unknown_error
from draftmill.generation.tickets import Asked, Ticket
from draftmill.generation.turns import Turns
from draftmill.generation.watch import Watch
from draftmill.generation.ways import Way, Ways
from draftmill.progress import Rows, ServerStanding, listener
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Failure, Fault, FaultKind, Returned, Row, ServerReport

TICK_S = 1.0
"""Seconds between looks at deadlines, at silent servers and at the clock."""

log = logging.getLogger("draftmill.generation")


class Keeper(Protocol):
    """Where completions go at once: the journal."""

    def put(self, completion: Completion) -> None: ...


@dataclass(slots=True)
class Counts:
    """Of the whole run: requests that reached a server (canaries excluded), also by chunk, those that were repeats,
    rows finished, output tokens, when each answer's request left and it came, and how fast it all went."""

    requests: int = 0
    retries: int = 0
    done: int = 0
    tokens: int = 0
    of_chunk: Counter[int] = field(default_factory=Counter)
    flights: Flights = field(default_factory=Flights)
    course: Course = field(default_factory=Course)


class Pool:
    """Sends rows to the servers that `reports` describe; none for a run that has only finished rows to seal.

    `failed`: the last words of the rows that failed, by row_key, as their chunks end.
    `judge` gives finished rows' verdicts, for the breaker; `look_again` the gate's second look at a server that was
    gone; `num_rows` is what is to be asked in all, for progress; `ways` has every variant of the rows.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        protocol: ModuleType,
        http: aiohttp.ClientSession,
        reports: Sequence[ServerReport],
        keeper: Keeper,
        judge: Judge,
        look_again: Callable[[ServerReport], Awaitable[Returned]],
        num_rows: int,
        ways: Ways,
        night: Night = NO_END,
    ) -> None:
        self.counts = Counts()
        self.stopped: DraftmillError | None = None
        self.failed: dict[str, str] = {}
        self._recipe = recipe
        self._protocol = protocol
        self._http = http
        self._keeper = keeper
        self._rolling = Rolling(recipe.breaker, judge)
        self._num_rows = num_rows
        self._night = night
        self._ways = ways
        self._waiting: list[Ticket] = []
        self._numbers = itertools.count()
        self._turns = Turns(recipe.engine.in_flight * len(reports))
        self._servers = [Server(report, recipe.engine.in_flight) for report in reports]
        self._watch = Watch(
            self._servers,
            protocol=protocol,
            http=http,
            look_again=look_again,
            spawn=self._spawn,
            changed=self._dispatch,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_asking = 0
        self._halted = asyncio.Event()
        self._started_s: float | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._spawn(self._ticks())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends everything; what is still in flight is aborted on its server, so that no GPU works for nobody."""
        if self._alarm is not None:
            self._alarm.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = self._watch.untold | {(server.url, rid) for server in self._servers for rid in server.flights}
        await asyncio.gather(*(self._protocol.abort(self._http, url, rid) for url, rid in left))

    def opened(self, chunk: int, num_rows: int) -> AbstractAsyncContextManager[None]:
        """A chunk's turn: waits, in the order of the calls, until the unsent rows fall below the budget."""
        return self._turns.opened(chunk, num_rows)

    async def ask(
        self, rows: list[Row], *, chunk: int, priors: Mapping[tuple[str, int], Answer] | None = None
    ) -> Asked:
        """All rows of a chunk, each sent until it is answered, failed, or the run is stopped.

        `priors`: by a row's key, the answer so far that this attempt goes on from.
        """
        self._turns.asks(chunk, len(rows))
        return await self._ask(rows, chunk, priors or {})

    def expect(self, chunk: int, num_rows: int) -> None:
        """A chunk will ask for so many rows, one by one, as soon as it can (`ask_one`)."""
        self._turns.asks(chunk, num_rows)

    async def ask_one(self, row: Row, *, chunk: int, expected: bool) -> Asked:
        """As `ask`, one row of a chunk; not `expected` where it waited for what others brought."""
        if not expected:
            self._turns.asks_more(chunk)
        return await self._ask([row], chunk, {})

    async def _ask(self, rows: list[Row], chunk: int, priors: Mapping[tuple[str, int], Answer]) -> Asked:
        asked, settled = Asked(), asyncio.Event()
        tickets = [
            Ticket((chunk, next(self._numbers)), row, asked, settled, len(rows), priors.get(row.key)) for row in rows
        ]
        if tickets and not self._servers:
            self.stop(not_planned())
        for ticket in tickets:
            self._queue_or_settle(ticket)
        # Soon, not now: an earlier chunk may be about to ask in this very turn of the loop.
        asyncio.get_running_loop().call_soon(self._dispatch)
        self._num_asking += 1
        try:
            if tickets:
                await settled.wait()
        finally:
            self._num_asking -= 1
            for ticket in tickets:  # a cancelled call leaves nothing behind that would still be sent
                ticket.void = True
        return asked

    def way(self, row: Row) -> Way:
        """How this row is asked."""
        return self._ways[row.variant]

    @property
    def weight_versions(self) -> set[str | None]:
        """What the servers say of their weights; None for one that does not tell."""
        return {server.report.weight_version for server in self._servers}

    def rows(self) -> Rows:
        """How far it is."""
        elapsed_s = time.monotonic() - (self._started_s or time.monotonic())
        return Rows(self.counts.done, self._num_rows, self.counts.tokens, elapsed_s)

    def standing(self) -> list[ServerStanding]:
        """How the servers are, for people."""
        now_s = time.monotonic()
        return [server.standing(now_s) for server in self._servers]

    def stop(self, error: DraftmillError) -> None:
        """Sends nothing more. Rows in flight still finish; those that wait are pending."""
        if self.stopped:
            return
        self.stopped = error
        self._halted.set()
        self._turns.end()
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            ticket.settle(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whatever goes wrong in a task of the pool stops the run: none must end in silence."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._unknown(error)

    def _unknown(self, error: BaseException) -> None:
        log.error("the pool met an error it does not know", exc_info=error)
        self.stop(unknown_error(error))

    def _queue_or_settle(self, ticket: Ticket) -> None:
        if self.stopped:
            ticket.settle(None)
        else:
            heapq.heappush(self._waiting, ticket)

    def _dispatch(self) -> None:
        """Sends what can be sent now, and comes back when a resting server has rested."""
        now_s = time.monotonic()
        usual_s = self._usual_s() if self._waiting else None
        while self._waiting:
            server = choose(self._servers, now_s, avoid=self._waiting[0].avoid)
            if server is None:
                self._set_alarm(now_s)
                return
            if not self._night.may_send(now_s, usual_s):
                self.stop(self._night.error())
                return
            ticket = heapq.heappop(self._waiting)
            if not ticket.void:
                try:
                    self._send(server, ticket)
                except Exception as error:
                    self._unknown(error)
                    ticket.settle(None)

    def _set_alarm(self, now_s: float) -> None:
        opens_s = min(server.opens_s(now_s) for server in self._servers)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if opens_s != float("inf"):
            self._alarm = asyncio.get_running_loop().call_later(opens_s, self._dispatch)

    def _usual_s(self) -> float | None:
        if self._night.ends_s is None:
            return None
        return max((s for server in self._servers if (s := server.pace.usual_s) is not None), default=None)

    def _send(self, server: Server, ticket: Ticket) -> None:
        if not ticket.granted:
            ticket.granted = True
            self._turns.sent(ticket.order[0])
        sent = first_request(ticket.row, ticket.prior, self.way(ticket.row).slice_tokens)
        now_s = time.monotonic()
        self._started_s = self._started_s or now_s
        # Of one length: SGLang aborts by prefix.
        flight = Flight(uuid.uuid4().hex, ticket, sent, now_s)
        server.flights[flight.rid] = flight
        flight.task = self._spawn(self._fly(server, flight))

    async def _fly(self, server: Server, flight: Flight) -> None:
        """One request and what follows."""
        try:
            sampling = self.way(flight.ticket.row).sampling
            result = await answer_of(
                server, flight, http=self._http, protocol=self._protocol, recipe=self._recipe, sampling=sampling
            )
            # Not in a `finally`: a cancelled request stays listed, for `__aexit__` to abort it.
            del server.flights[flight.rid]
            self._count(flight.ticket, result)
            self._handle(server, flight, result)
        except DraftmillError as error:  # the journal cannot write: nothing more may be generated
            self.stop(error)
            flight.ticket.settle(None)
        except Exception as error:
            self._unknown(error)
            flight.ticket.settle(None)
        self._dispatch()

    def _count(self, ticket: Ticket, result: Answer | Fault) -> None:
        if isinstance(result, Fault) and result.kind is FaultKind.CONNECT:
            return
        self.counts.requests += 1
        self.counts.of_chunk[ticket.order[0]] += 1
        self.counts.retries += ticket.sent > 0
        ticket.sent += 1

    def _handle(self, server: Server, flight: Flight, result: Answer | Fault) -> None:
        ticket, now_s = flight.ticket, time.monotonic()
        if isinstance(result, Answer):
            server.answered(flight, result, now_s)
            self.counts.flights.note(flight.sent_s, now_s, len(result.output_ids))
            self._take(ticket, flight.sent, result)
            return
        if self.stopped and flight.given_up is not None:  # by us, as a rule: no fault of the server
            ticket.settle(None)
            return
        if (why := server.failed(flight, result, now_s)) is not None:
            self._watch.take_out(server, why)
        if result.kind is FaultKind.OVERLOADED:
            ticket.refuse(server.url, server.answers)
        decision = decide(
            result,
            tries=ticket.tries + 1,
            retries=self._recipe.engine.retries,
            resent=ticket.resent,
            refusals=ticket.refusals,
            answered=server.answers > 0,
        )
        ticket.resent = decision.outcome is Outcome.RETRY_HERE
        ticket.avoid = None if ticket.resent else server.url
        ticket.tries += decision.outcome in (Outcome.RETRY_ELSEWHERE, Outcome.FAIL_ROW)
        match decision.outcome:
            case Outcome.RETRY_HERE | Outcome.WAIT:
                self._queue_or_settle(ticket)
            case Outcome.RETRY_ELSEWHERE:
                self._spawn(self._later(ticket, decision.pause_s))
            case Outcome.FAIL_ROW if result.answer is not None and ticket.prior is None:
                self._take(ticket, flight.sent, result.answer)  # aborted to the last: quarantined by name, not lost
            case Outcome.FAIL_ROW:
                tries = ticket.refused if result.kind is FaultKind.OVERLOADED else ticket.tries
                self._fail(Failure(ticket.row, result.words, tries), ticket)
            case Outcome.STOP_RUN:
                self.stop(refused(server.url, result))
                ticket.settle(None)

    def _fail(self, failure: Failure, ticket: Ticket) -> None:
        self._progress()
        self._rolling.fail(failure)
        self._heed_breaker()
        ticket.settle(failure)

    async def _later(self, ticket: Ticket, pause_s: float) -> None:
        """A row's pause; a stopped run does not sit it out."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._halted.wait()
        self._queue_or_settle(ticket)
        self._dispatch()

    def _take(self, ticket: Ticket, sent: Row, answer: Answer) -> None:
        """An answer: kept, and then the row's end, unless it was cut by length and is asked on."""
        way = self.way(ticket.row)
        completion = joined(ticket.row, ticket.prior, answer, sent=sent, end_ids=way.end_ids)
        self._keeper.put(completion)
        self.counts.tokens += len(answer.output_ids)
        ticket.asked.tokens += len(answer.output_ids)
        if next_round := goes_on(ticket.row, completion, way.slice_tokens):
            ticket.row, ticket.prior = next_round
            ticket.sent, ticket.tries, ticket.refusals, ticket.resent, ticket.avoid = 0, 0, 0, False, None
            self._queue_or_settle(ticket)
            return
        self._progress()
        self._rolling.push(completion)
        self._heed_breaker()
        ticket.settle(completion)  # last: what goes wrong above settles it as pending, and the journal has it

    def _heed_breaker(self) -> None:
        if not self.stopped and (error := self._rolling.error([server.report for server in self._servers])):
            self.stop(error)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._tick(time.monotonic())
            except Exception as error:  # deadlines and the night's end must go on being looked at
                self._unknown(error)

    def _tick(self, now_s: float) -> None:
        counts, servers = self.counts, self._servers
        in_flight, limit = sum(len(s.flights) for s in servers), sum(s.limiter.limit for s in servers)
        counts.course.note(now_s, tokens=counts.tokens, rows=counts.done, in_flight=in_flight, limit=limit)
        self._watch.tick(now_s)
        self._look_for_hope(now_s)
        if self._night.left_s(now_s) == 0:
            self._end_night()
        if not self.stopped:
            self._rolling.look()
            self._heed_breaker()

    def _look_for_hope(self, now_s: float) -> None:
        """Stops when no server could be used for longer than the recipe waits."""
        gone_s, wait_s = all_troubled_s(self._servers, now_s), self._recipe.engine.wait_s
        if not self._waiting or gone_s is None:
            return
        if gone_s >= wait_s:
            self.stop(all_gone(self._servers, wait_s))
        else:
            words = self._servers[0].last_words
            listener().wait(f"no server takes rows ({words}); waiting, {wait_s - gone_s:.0f} s left")

    def _end_night(self) -> None:
        """Ends what is in flight; rows that ask later are stopped when they would be sent."""
        if self._num_asking:
            self.stop(self._night.error())
        for server in self._servers:
            for flight in list(server.flights.values()):
                self._watch.give_up(server, flight, "the night is over")

    def _progress(self) -> None:
        self.counts.done += 1
        listener().rows(self.rows())
