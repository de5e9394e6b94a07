"""One inference server as the pool sees it: what is in flight there, how much it takes, whether it can be asked.

No network and no clock of its own: `watch` looks, `pool` sends, both tell the
server what they saw. A server is *out* from the first sign that it cannot be
asked until a second look finds it well and the same; it *rests* for a moment
after it said that it is full.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from draftmill.generation.limiter import Limiter
from draftmill.generation.pace import Pace
from draftmill.generation.retry import rest_s
from draftmill.generation.tickets import Ticket
from draftmill.progress import ServerStanding
from draftmill.records import Answer, Fault, FaultKind, Life, Row, ServerReport

OUT_AFTER = 8
"""Faults in a row, without an answer between them, that take a server out: one row's bad luck is less."""

_OF_THE_ROW = frozenset(
    {
        FaultKind.REJECTED,
        FaultKind.STALE,
        FaultKind.UNAUTHORIZED,
        FaultKind.WRONG_SERVER,
        FaultKind.OTHER_WEIGHTS,
    }
)
"""Faults that say nothing about whether the server can be asked, or that end the run anyway."""


@dataclass(slots=True, eq=False)
class Flight:
    """A request on its way. `sent`: the row as it was sent; `reused`: over a kept connection; `given_up`: why nobody
    waits for its answer any more."""

    rid: str
    ticket: Ticket
    sent: Row
    sent_s: float
    reused: bool = False
    given_up: str | None = None
    task: asyncio.Task[None] | None = None

    def give_up(self, why: str) -> bool:
        """Ends it without an answer; False when that is done already."""
        if self.given_up is not None or self.task is None:
            return False
        self.given_up = why
        # Soon, not now: a task that has not begun yet would end without a trace, and its row with it.
        self.task.get_loop().call_soon(self.task.cancel)
        return True


class Server:
    """`answers`: how many it gave, with `output_tokens`; `out`: why it cannot be asked, None while it can; `life`: what
    the last look showed.

    Times are monotonic seconds: `heard_s` its last sign of life, `looked_s` the last look, `out_s` when it was taken
    out last, `troubled_s` since when it has given nothing but refusals (None while it answers).
    """

    def __init__(self, report: ServerReport, ceiling: int) -> None:
        self.report = report
        self.limiter = Limiter(ceiling)
        self.pace = Pace()
        self.flights: dict[str, Flight] = {}
        self.answers = 0
        self.output_tokens = 0
        self.out: str | None = None
        self.out_s = -math.inf
        self.life = Life.ALIVE
        self.last_words = ""
        self.troubled_s: float | None = None
        self.heard_s = -math.inf
        self.looked_s = -math.inf
        self.tokens: int | None = None
        self.tokens_since_s = -math.inf
        self._rests_until_s = -math.inf
        self._refusals = 0
        self._faults_in_a_row = 0

    @property
    def url(self) -> str:
        return self.report.url

    def opens_s(self, now_s: float) -> float:
        """Seconds until it may be sent a row: 0 now, infinity when something else must happen first."""
        if self.out is not None or len(self.flights) >= self.limiter.limit:
            return math.inf
        return max(0.0, self._rests_until_s - now_s)

    def answered(self, flight: Flight, answer: Answer, now_s: float) -> None:
        """A whole answer came, good or bad."""
        self.answers += 1
        self.output_tokens += len(answer.output_ids)
        self.heard_s = now_s
        # One that is out may still answer what it had; from then on it gives nothing.
        self.troubled_s = None if self.out is None else now_s
        self._refusals = self._faults_in_a_row = 0
        self.limiter.answered()
        self.pace.note(now_s - flight.sent_s, len(answer.output_ids))

    def failed(self, flight: Flight, fault: Fault, now_s: float) -> str | None:
        """A fault came; in words why the server must be taken out for it, None when it need not."""
        if fault.kind is FaultKind.WRONG_SERVER and self.answers:
            return fault.words  # a proxy without its backend, say: it has been the right one
        if fault.kind in _OF_THE_ROW:
            return None
        self.last_words = fault.words
        in_flight = len(self.flights) + 1  # the one that came back is no longer among them
        if fault.kind is FaultKind.OVERLOADED:
            self.limiter.refused(in_flight=in_flight, sent_s=flight.sent_s, now_s=now_s)
            self._rest(fault.retry_after_s, now_s)
            return None
        if fault.kind is FaultKind.CONNECT:
            self.limiter.unreachable(in_flight=in_flight, sent_s=flight.sent_s, now_s=now_s)
            return fault.words
        self._faults_in_a_row += 1
        if self._faults_in_a_row < OUT_AFTER:
            return None
        return f"{self._faults_in_a_row} faults in a row, the last: {fault.words}"

    def take_out(self, why: str, now_s: float) -> None:
        """No row is sent until `take_back`; what is in flight may still be answered."""
        self.out = self.last_words = why
        self.out_s = now_s
        self.troubled_s = now_s if self.troubled_s is None else self.troubled_s

    def take_back(self, report: ServerReport, now_s: float) -> None:
        """It is well and the same."""
        self.report, self.out, self.heard_s, self.life = report, None, now_s, Life.ALIVE
        self.tokens = None
        self._faults_in_a_row = 0

    def standing(self, now_s: float) -> ServerStanding:
        """How it is now, for people."""
        return ServerStanding(
            self.url, self._words(now_s), len(self.flights), self.limiter.limit, self.answers, self.output_tokens
        )

    def _words(self, now_s: float) -> str:
        if self.out is not None:
            what = "draining" if self.life is Life.LEAVING else "out"
            return f"{what} for {now_s - self.out_s:.0f} s: {self.out}"
        return "full, rests for a moment" if self._rests_until_s > now_s else "ok"

    def _rest(self, retry_after_s: float | None, now_s: float) -> None:
        self.troubled_s = now_s if self.troubled_s is None else self.troubled_s
        if self._rests_until_s <= now_s:  # one round of refusals, not one request
            self._refusals += 1
        self._rests_until_s = max(self._rests_until_s, now_s + rest_s(self._refusals, retry_after_s))


def choose(servers: Sequence[Server], now_s: float, *, avoid: str | None = None) -> Server | None:
    """The server with the fewest requests in flight that has room, another than `avoid` if there is one; else None."""
    open_ones = [server for server in servers if server.opens_s(now_s) == 0]
    return min(open_ones, key=lambda server: (server.url == avoid, len(server.flights)), default=None)


def all_troubled_s(servers: Sequence[Server], now_s: float) -> float | None:
    """Seconds for which no server at all could be used and nothing was in flight; None while there is hope."""
    since_s = [server.troubled_s for server in servers if server.troubled_s is not None and not server.flights]
    return now_s - max(since_s) if since_s and len(since_s) == len(servers) else None
