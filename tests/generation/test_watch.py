"""The watch, by a clock that the test turns and looks that it scripts: who is given up, when, and who returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from draftmill.generation import pace, retry, watch
from draftmill.generation.servers import Flight, Server
from draftmill.generation.tickets import Asked, Ticket
from draftmill.generation.watch import GRACE_S, NO_TOKENS_S, QUIET_S, Watch
from draftmill.progress import listening
from draftmill.records import Life, Pulse, Return, Returned, Row, ServerReport

GRACE = GRACE_S  # conftest shortens the module's own
ALIVE, LEAVING = Pulse(Life.ALIVE, "well"), Pulse(Life.LEAVING, "it drains")
CLOSED, STUCK = Pulse(Life.CLOSED, "it refuses"), Pulse(Life.STUCK, "it is stuck")
SAME, NOT_YET = Returned(Return.SAME, "the same"), Returned(Return.NOT_YET, "a canary died")
OTHER = Returned(Return.OTHER, "weights were v1 and are v2")
Rows = Callable[..., list[Row]]


class Watched:
    """One server with flights under a watch. `shows`: what a look sees; `finds`: what the gate's second look finds."""

    def __init__(self, row: Row) -> None:
        self.now_s = 1000.0
        self.shows, self.finds = ALIVE, SAME
        self.num_looks = self.num_second_looks = self.num_changes = 0
        self.aborted: list[str] = []
        self.said: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.server = Server(ServerReport("http://a", "e", "1", None, None, None, None, None, None, {}), 8)
        self._row = row
        self._proceed = asyncio.Event()
        protocol: Any = SimpleNamespace(pulse=self._pulse, abort=self._abort)
        http: Any = SimpleNamespace(headers={})
        self.watch = Watch(
            [self.server],
            protocol=protocol,
            http=http,
            look_again=self._second_look,
            spawn=self.spawn,
            changed=self._changed,
        )

    def fly(self, rid: str = "r") -> Flight:
        ticket = Ticket((0, len(self.server.flights)), self._row, Asked(), asyncio.Event(), 1)
        flight = Flight(rid, ticket, self._row, self.now_s)
        flight.task = asyncio.ensure_future(asyncio.sleep(3600))
        self.server.flights[rid] = flight
        return flight

    def spawn(self, work: Any) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    def tick(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.watch.tick(self.now_s)

    async def looks(self, number: int) -> None:
        """Until it was looked at so many times more and what was seen is dealt with."""
        wanted = self.num_looks + number + 1  # when the next one begins, the one before is dealt with
        async with asyncio.timeout(30):
            while self.num_looks < wanted:
                await asyncio.sleep(0.001)

    async def settled(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _pulse(self, _: Any, __: str) -> Pulse:
        self.num_looks += 1
        await asyncio.sleep(0)
        return self.shows

    async def _abort(self, _: Any, __: str, rid: str) -> None:
        self.aborted.append(rid)

    async def _second_look(self, before: ServerReport) -> Returned:
        self.num_second_looks += 1
        return self.finds

    def _changed(self) -> None:
        assert self.server.out is None, "told before it could be asked"
        self.num_changes += 1

    # a progress listener
    def stage(self, text: str) -> None:
        self.said.append(text)

    def wait(self, text: str) -> None:
        self.said.append(text)

    def rows(self, _: Any) -> None: ...


@pytest.fixture
async def watched(rows_of: Rows, monkeypatch: pytest.MonkeyPatch) -> Any:
    seen = Watched(rows_of(1)[0])
    monkeypatch.setattr(watch, "GRACE_S", GRACE)
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: seen.now_s))
    monkeypatch.setattr(retry, "LONGEST_REST_S", 0.004)
    with listening(seen):
        yield seen
        for task in [*seen.tasks, *(flight.task for flight in seen.server.flights.values() if flight.task)]:
            task.cancel()
        await asyncio.gather(*seen.tasks, return_exceptions=True)
        assert not [task for task in seen.tasks if not task.cancelled() and task.exception()]


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "UNMEASURED_S", 10.0)
    monkeypatch.setattr(pace, "UNMEASURED_S_PER_ID", 0.0)


@pytest.mark.usefixtures("short_deadlines")
async def test_a_request_is_given_up_behind_its_deadline_and_the_server_told_once(watched: Watched) -> None:
    early = watched.fly("early")
    watched.now_s += 5
    late = watched.fly("late")
    watched.tick(5.0)
    assert (early.given_up, late.given_up) == (None, None)
    watched.tick(0.1)
    watched.tick(0.1)
    await watched.settled()
    assert (early.given_up, late.given_up) == ("no answer within 10 s", None)
    assert early.task is not None
    assert early.task.cancelled()
    assert watched.aborted == ["early"]
    assert watched.server.out is None  # one row's bad luck


@pytest.mark.usefixtures("short_deadlines")
async def test_deadlines_count_for_a_server_that_is_out_too(watched: Watched) -> None:
    flight = watched.fly()
    watched.shows = LEAVING
    watched.watch.take_out(watched.server, "it drains")
    watched.tick(11.0)
    assert flight.given_up == "no answer within 10 s"


async def test_only_a_silent_server_with_requests_out_is_looked_at_and_by_one_at_a_time(watched: Watched) -> None:
    watched.tick(QUIET_S + 1)  # nothing is out
    watched.fly()
    watched.tick(QUIET_S)
    watched.server.heard_s = watched.now_s
    watched.tick(QUIET_S)
    await watched.settled()
    assert watched.num_looks == 0
    watched.tick(0.1)
    watched.tick(0.1)
    await watched.settled()
    assert watched.num_looks == 1
    assert watched.server.heard_s == watched.now_s  # what is alive was heard
    watched.tick(QUIET_S + 1)
    await watched.settled()
    assert watched.num_looks == 2
    assert watched.server.out is None
    assert not watched.said


@pytest.mark.parametrize("shows", [CLOSED, STUCK, LEAVING])
async def test_a_server_that_is_not_alive_is_taken_out_at_the_first_look(watched: Watched, shows: Pulse) -> None:
    flight = watched.fly()
    watched.shows = shows
    watched.tick(QUIET_S + 1)
    await watched.looks(2)
    assert watched.server.out == watched.server.last_words == shows.words
    assert flight.given_up is None  # no time has passed
    assert "taken out" in watched.said[0]
    assert "kept" in watched.said[0]
    assert shows.words in watched.said[0]
    looks = watched.num_looks
    watched.tick(QUIET_S + 1)
    await watched.settled()
    assert watched.num_looks - looks <= 1  # not looked at twice: its way back is looked for already


@pytest.mark.parametrize("shows", [CLOSED, STUCK])
async def test_what_is_in_flight_is_given_up_when_it_was_gone_for_a_while(watched: Watched, shows: Pulse) -> None:
    flights = [watched.fly(rid) for rid in ("a", "b")]
    watched.shows = shows
    watched.tick(QUIET_S + 1)
    await watched.looks(1)
    watched.now_s += GRACE - 0.1
    await watched.looks(2)
    assert [flight.given_up for flight in flights] == [None, None]
    watched.now_s += 0.2
    await watched.looks(2)
    assert [flight.given_up for flight in flights] == [shows.words] * 2
    assert sorted(watched.aborted) == ["a", "b"]
    assert any("still out" in said for said in watched.said)


@pytest.mark.parametrize("between", [LEAVING, ALIVE])
async def test_a_sign_of_life_ends_the_doubt(watched: Watched, between: Pulse) -> None:
    flight = watched.fly()
    watched.finds = NOT_YET  # so that it stays out
    for shows in (CLOSED, between, CLOSED):
        watched.shows = shows
        watched.watch.take_out(watched.server, "gone")
        await watched.looks(2)
        watched.now_s += GRACE - 0.1
    assert flight.given_up is None
    watched.now_s += 0.2
    await watched.looks(2)
    assert flight.given_up == CLOSED.words


async def test_a_draining_server_may_take_as_long_as_its_rows_may(watched: Watched) -> None:
    flight = watched.fly()
    watched.shows = LEAVING
    watched.tick(QUIET_S + 1)
    for _ in range(5):
        watched.now_s += 10 * GRACE
        await watched.looks(2)
    assert watched.server.out == LEAVING.words
    assert flight.given_up is None


async def quiet_looks(watched: Watched, tokens: Callable[[int], int | None], *, for_s: float) -> None:
    for number in range(int(for_s / (QUIET_S + 1)) + 1):
        watched.shows = replace(ALIVE, tokens=tokens(number))
        watched.tick(QUIET_S + 1)
        await watched.settled()


async def test_an_engine_that_calls_itself_healthy_without_one_token_is_stuck(watched: Watched) -> None:
    flight = watched.fly()
    await quiet_looks(watched, lambda _: 5000, for_s=NO_TOKENS_S)
    assert (watched.server.out, flight.given_up) == (None, None)
    watched.finds = NOT_YET
    await quiet_looks(watched, lambda _: 5000, for_s=2 * QUIET_S)
    assert "not one token" in (watched.server.out or "")
    assert flight.given_up == watched.server.out
    assert watched.aborted == ["r"]


@pytest.mark.parametrize("tokens", [lambda number: 5000 + number, lambda _: None])
async def test_an_engine_that_generates_or_does_not_say_is_believed(watched: Watched, tokens: Any) -> None:
    flight = watched.fly()
    await quiet_looks(watched, tokens, for_s=500.0)
    assert (watched.server.out, flight.given_up) == (None, None)


@pytest.mark.parametrize("finds", [NOT_YET, OTHER])
async def test_it_is_back_when_the_second_look_says_so_and_not_before(watched: Watched, finds: Returned) -> None:
    watched.shows = CLOSED
    watched.watch.take_out(watched.server, "gone")
    watched.watch.take_out(watched.server, "gone twice")
    assert len(watched.tasks) == 1
    await watched.looks(2)
    assert watched.num_second_looks == 0  # not of one that is not well
    watched.shows, watched.finds = ALIVE, finds
    await watched.looks(3)
    assert watched.server.out == "gone"
    assert watched.server.last_words == finds.words
    assert watched.num_second_looks >= 2
    words = "another server" if finds is OTHER else "not well"
    assert any(words in said and finds.words in said for said in watched.said)
    report = replace(watched.server.report, weight_version="v2")
    watched.finds = replace(SAME, report=report)
    while watched.server.out:
        await asyncio.sleep(0.001)
    await watched.settled()
    assert (watched.num_changes, watched.server.report, watched.said[-1]) == (1, report, "http://a is back")
    seen = watched.num_looks
    await asyncio.sleep(0.02)
    assert watched.num_looks == seen  # and nobody looks any more


async def test_it_can_go_and_come_back_again_and_again(watched: Watched) -> None:
    for number in range(1, 4):
        watched.watch.take_out(watched.server, "gone")
        while watched.server.out:
            await asyncio.sleep(0.001)
        await watched.settled()
        assert watched.num_changes == number
