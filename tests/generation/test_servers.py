"""One server as the pool sees it, by the clock that is passed in: who is chosen, who rests, who is out, since when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.generation.retry import LONGEST_RETRY_AFTER_S, rest_s
from draftmill.generation.servers import OUT_AFTER, Flight, Server, all_troubled_s, choose
from draftmill.generation.tickets import Asked, Ticket
from draftmill.records import Answer, Fault, FaultKind, Life, Row, ServerReport

ANSWER = Answer(ids_array("o", [1, 2]), None, 3, 2, "stop", None, 2, "sglang", None, datetime.now(UTC))
ROW = Row("k", 0, "p", "p", "default", 0, ids_array("p", [1, 2, 3]), 100, None, "s")
COUNTED = [FaultKind.RESET, FaultKind.UNANSWERED, FaultKind.ABORTED, FaultKind.SERVER_ERROR, FaultKind.UNREADABLE]
NOT_COUNTED = [
    FaultKind.STALE,
    FaultKind.REJECTED,
    FaultKind.UNAUTHORIZED,
    FaultKind.WRONG_SERVER,
    FaultKind.OTHER_WEIGHTS,
]


def server_at(url: str = "http://a", *, ceiling: int = 8, flights: int = 0) -> Server:
    report = ServerReport(url, "sglang", None, None, None, None, None, None, None, {})
    server = Server(report, ceiling)
    for number in range(flights):
        server.flights[str(number)] = flight()
    return server


def flight(sent_s: float = 0.0) -> Flight:
    return Flight("r", Ticket((0, 0), ROW, Asked(), asyncio.Event(), 1), ROW, sent_s)


def fault(kind: FaultKind, retry_after_s: float | None = None) -> Fault:
    return Fault(kind, f"seen: {kind}", retry_after_s)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 6))
def test_the_one_with_the_fewest_in_flight_and_room_is_chosen(flying: list[int], avoided: int) -> None:
    servers = [server_at(f"http://{number}", flights=count) for number, count in enumerate(flying)]
    chosen, with_room = choose(servers, 0.0), [count for count in flying if count < 8]
    assert (len(chosen.flights) if chosen else None) == min(with_room, default=None)
    chosen = choose(servers, 0.0, avoid=f"http://{avoided}")
    others = [count for number, count in enumerate(flying) if number != avoided and count < 8]
    # The avoided one is better than none: the row would wait for nothing.
    assert (len(chosen.flights) if chosen else None) == min(others, default=min(with_room, default=None))
    assert chosen is None or chosen.url != f"http://{avoided}" or not others


def test_neither_one_that_is_out_nor_one_that_rests_is_chosen() -> None:
    out, resting, good = server_at("http://a"), server_at("http://b"), server_at("http://c", flights=5)
    out.take_out("gone", 0.0)
    resting.failed(flight(), fault(FaultKind.OVERLOADED, 30.0), 10.0)
    assert choose([out, resting, good], 20.0) is good
    assert choose([out, resting], 20.0) is None
    assert (out.opens_s(20.0), resting.opens_s(20.0), good.opens_s(20.0)) == (math.inf, 20.0, 0.0)
    assert choose([out, resting], 40.0) is resting
    out.take_back(out.report, 50.0)
    assert choose([out, resting], 50.0) is out


def test_one_that_is_full_opens_when_something_comes_back_and_not_by_the_clock() -> None:
    server = server_at(ceiling=2, flights=2)
    server.failed(flight(), fault(FaultKind.OVERLOADED, 1.0), 0.0)
    assert server.opens_s(0.0) == server.opens_s(9.0) == math.inf


@pytest.mark.parametrize("kind", COUNTED)
def test_faults_in_a_row_take_it_out_and_an_answer_between_them_does_not(kind: FaultKind) -> None:
    server = server_at()
    for _ in range(3):
        for _ in range(OUT_AFTER - 1):
            assert server.failed(flight(), fault(kind), 1.0) is None
        server.answered(flight(), ANSWER, 2.0)
    whys = [server.failed(flight(), fault(kind), 3.0) for _ in range(OUT_AFTER)]
    assert whys[:-1] == [None] * (OUT_AFTER - 1)
    assert str(OUT_AFTER) in (whys[-1] or "")
    assert f"seen: {kind}" in (whys[-1] or "")
    server.take_out(whys[-1] or "", 3.0)
    server.take_back(server.report, 9.0)
    assert server.failed(flight(), fault(kind), 10.0) is None


@pytest.mark.parametrize("kind", NOT_COUNTED)
def test_what_is_the_rows_own_or_ends_the_run_says_nothing_of_the_server(kind: FaultKind) -> None:
    server = server_at(flights=4)
    whys = [server.failed(flight(), fault(kind), 1.0) for _ in range(3 * OUT_AFTER)]
    assert set(whys) == {None}
    assert (server.limiter.limit, server.opens_s(1.0), server.troubled_s) == (8, 0.0, None)


def test_every_kind_is_counted_or_not_or_has_its_own_rule() -> None:
    assert {*COUNTED, *NOT_COUNTED, FaultKind.OVERLOADED, FaultKind.CONNECT} == set(FaultKind)


def test_one_refused_connection_takes_it_out_and_halves_its_limit() -> None:
    server = server_at(flights=7)
    assert server.failed(flight(), fault(FaultKind.CONNECT), 1.0) == "seen: connect"
    assert server.limiter.limit == 4


def test_a_full_server_is_never_taken_out_only_halved_and_left_alone_for_a_while() -> None:
    server, now_s = server_at(ceiling=64, flights=63), 0.0
    limits, rests = [], []
    for _ in range(8):
        assert server.failed(flight(now_s), fault(FaultKind.OVERLOADED), now_s + 1) is None
        limits.append(server.limiter.limit)
        server.flights.clear()  # its other refusals came too
        rests.append(server.opens_s(now_s + 1))
        now_s += 1 + rests[-1]
    assert limits == [32, 1, 1, 1, 1, 1, 1, 1]
    assert rests == pytest.approx([rest_s(number) for number in range(1, 9)])
    server.answered(flight(), ANSWER, now_s)
    server.failed(flight(now_s), fault(FaultKind.OVERLOADED), now_s + 1)
    assert server.opens_s(now_s + 1) == pytest.approx(rest_s(1))


def test_refusals_of_one_round_are_one_rest_and_the_longest_asked_for() -> None:
    server = server_at()
    for retry_after_s in (None, 3.0, 20.0, 7.0):
        server.failed(flight(), fault(FaultKind.OVERLOADED, retry_after_s), 1.0)
    assert server.opens_s(1.0) == 20.0
    server.failed(flight(), fault(FaultKind.OVERLOADED, None), 25.0)
    assert server.opens_s(25.0) == pytest.approx(rest_s(2))


def test_retry_after_is_bounded() -> None:
    server = server_at()
    server.failed(flight(), fault(FaultKind.OVERLOADED, 1e9), 0.0)
    assert server.opens_s(0.0) == LONGEST_RETRY_AFTER_S


def test_an_answer_is_a_sign_of_life_and_measured() -> None:
    server = server_at()
    server.failed(flight(), fault(FaultKind.OVERLOADED), 5.0)
    server.answered(flight(10.0), ANSWER, 40.0)
    assert (server.heard_s, server.troubled_s, server.pace.longest_s) == (40.0, None, 30.0)


def trouble(kind: str) -> Callable[[Server, float], Any]:
    def out(server: Server, now_s: float) -> None:
        server.take_out("gone", now_s)

    def full(server: Server, now_s: float) -> None:
        server.failed(flight(), fault(FaultKind.OVERLOADED), now_s)

    return {"out": out, "full": full}[kind]


@given(st.lists(st.tuples(st.sampled_from(["out", "full"]), st.integers(0, 100)), min_size=1, max_size=5))
def test_all_are_in_trouble_since_the_last_one_is(whens: Sequence[tuple[str, int]]) -> None:
    servers = [server_at(f"http://{number}") for number in range(len(whens))]
    for server, (kind, when_s) in zip(servers, whens, strict=True):
        assert all_troubled_s(servers, 200.0) is None
        trouble(kind)(server, float(when_s))
        trouble(kind)(server, float(when_s) + 1)  # trouble has its beginning, however often it is seen
    assert all_troubled_s(servers, 200.0) == 200 - max(when_s for _, when_s in whens)
    servers[0].flights["r"] = flight()
    assert all_troubled_s(servers, 200.0) is None  # it may still be answered
    servers[0].flights.clear()
    servers[0].answered(flight(), ANSWER, 150.0)
    # One that is out gave the last of what it had, and gives nothing from then on.
    assert all_troubled_s(servers, 200.0) == (50.0 if whens[0][0] == "out" else None)


def test_a_server_that_is_back_but_gives_nothing_is_in_trouble_since_the_beginning() -> None:
    # Else one that is well for its canary only would be waited for without end.
    server = server_at()
    server.take_out("gone", 10.0)
    server.take_back(replace(server.report, version="new"), 50.0)
    assert (server.report.version, server.heard_s) == ("new", 50.0)
    server.take_out("gone again", 60.0)
    assert all_troubled_s([server], 70.0) == 60.0


async def test_a_flight_is_given_up_once_with_the_first_reason() -> None:
    flying = flight()
    assert not flying.give_up("too early: it has no task")
    flying.task = asyncio.create_task(asyncio.sleep(60))
    assert flying.give_up("first")
    assert not flying.give_up("second")
    assert flying.given_up == "first"
    with pytest.raises(asyncio.CancelledError):
        await flying.task
    assert flying.task.cancelling() == 1


async def test_a_flight_that_is_given_up_before_it_began_still_learns_of_it() -> None:
    flying, learned = flight(), []

    async def fly() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            learned.append(flying.given_up)

    flying.task = asyncio.create_task(fly())
    flying.give_up("gone")
    await flying.task
    assert learned == ["gone"]


def test_how_it_stands_in_words() -> None:
    server = server_at(flights=3)
    assert (server.standing(10.0).state, server.standing(10.0).in_flight, server.standing(10.0).limit) == ("ok", 3, 8)
    server.failed(flight(9.0), fault(FaultKind.OVERLOADED, retry_after_s=5.0), 10.0)
    assert server.standing(11.0).state == "full, rests for a moment"
    server.take_out("no connection", 20.0)
    assert server.standing(50.0).state == "out for 30 s: no connection"
    server.life = Life.LEAVING
    assert server.standing(50.0).state.startswith("draining for 30 s")
    server.take_back(server.report, 60.0)
    assert server.standing(60.0).state == "ok"
