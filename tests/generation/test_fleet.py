"""Several servers that do what servers do: they fill up, hang, drain, die, come back, or come back as another one.

Whatever happens, every row comes out once and nothing finished is lost; what the
servers' own logs say is the judge.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from draftmill.engines import _pages, sglang
from draftmill.errors import GateRefused
from draftmill.generation import exchange, pace, retry, watch
from draftmill.generation.tickets import Asked
from draftmill.records import Return, Returned, Row, ServerReport
from draftmill.serving import fake_events
from draftmill.serving.fake import CARD, FakeServer, Latency
from draftmill.serving.faults import Act, Fault, always, nth

Rows = Callable[..., list[Row]]


@pytest.fixture(autouse=True)
def quick_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "QUIET_S", 0.02)
    monkeypatch.setattr(retry, "LONGEST_REST_S", 0.01)
    monkeypatch.setattr(exchange, "STALE_WITHIN_S", 60.0)


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "QUIET_S", 60.0)
    monkeypatch.setattr(pace, "UNMEASURED_S", 0.3)
    monkeypatch.setattr(pace, "UNMEASURED_S_PER_ID", 0.0)
    monkeypatch.setattr(pace, "LEAST_S", 0.3)


@contextlib.asynccontextmanager
async def fakes(number: int, kind: type[FakeServer] = FakeServer, **options: Any) -> AsyncIterator[list[Any]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(kind(**options)) for _ in range(number)]


def keys(rows: list[Row]) -> Counter[str]:
    return Counter(row.row_key for row in rows)


def assert_all_done(asked: Asked, rows: list[Row], run: Any) -> None:
    assert keys([completion.row for completion in asked.completions]) == keys(rows)
    assert (asked.failures, asked.pending, run.pool.stopped) == ([], [], None)
    assert Counter(run.kept.keys) == keys(rows)


def prompts(fake: FakeServer, first: int = 0) -> list[int]:
    return [(entry.input_ids or [0])[0] for entry in fake.log[first:]]


# --- requests that are never answered ---


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("hangs", [{1}, {1, 2, 3}, {2, 5, 8}])
async def test_a_request_that_is_never_answered_is_given_up_told_and_sent_again(
    a_run: Any, rows_of: Rows, wait_until: Any, hangs: set[int]
) -> None:
    rows = rows_of(6)
    told: list[str] = []

    class Told(FakeServer):
        def abort(self, prefix: str, *, everything: bool) -> None:
            told.append(prefix)

    async with Told(rule=nth(dict.fromkeys(hangs, Fault.HANG))) as fake, a_run(fake.url, retries=50) as run:
        asked = await run.pool.ask(rows, chunk=1)
        hung = [entry.rid for entry in fake.log if entry.fault == Fault.HANG]
        assert len(hung) == len(hangs)
        await wait_until(lambda: {*hung} <= {*told})
    assert_all_done(asked, rows, run)
    assert {*hung} <= {*run.aborted}
    assert run.pool.counts.requests == len(fake.log) >= 6 + len(hangs)


@pytest.mark.usefixtures("short_deadlines")
async def test_a_row_that_is_never_answered_fails_in_the_end_and_says_so(a_run: Any, rows_of: Rows) -> None:
    async with FakeServer(rule=always(Fault.HANG)) as fake, a_run(fake.url, retries=1) as run:
        asked = await run.pool.ask(rows_of(1), chunk=1)
        assert len(fake.log) == 2
    (failure,) = asked.failures
    assert failure.tries == 2
    assert "no answer within" in failure.words


async def test_a_port_that_refuses_while_requests_hang_is_given_up(
    a_run: Any, rows_of: Rows, wait_until: Any, gated_server: Any
) -> None:
    """vLLM after SIGTERM: the connections stay open for ever."""
    rows = rows_of(12)
    async with fakes(2, gated_server) as (leaving, good), a_run(leaving.url, good.url, in_flight=3) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: len(leaving.flights) == len(good.flights) == 3)
        for site in list(leaving._runner.sites):
            await site.stop()
        good.let(100)
        asked = await asking
        assert_all_done(asked, rows, run)
        assert len(leaving.log) == 3
        assert {*prompts(leaving)} <= {*prompts(good)}
        assert len(good.log) == 12
        assert {entry.rid for entry in leaving.log} <= {*run.aborted}
    assert any("taken out" in text for text in run.heard.waits)


async def test_a_stuck_scheduler_is_left_and_taken_back_when_it_goes_on(
    a_run: Any, rows_of: Rows, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pages, "AT_ONCE_S", -1.0)  # a 503 takes SGLang its whole time, here it is short
    monkeypatch.setattr(fake_events, "HEALTH_S", 0.01)
    rows = rows_of(60)
    async with fakes(2, latency=Latency(0.005)) as (stuck, good), a_run(stuck.url, good.url, retries=30) as run:
        asking = asyncio.create_task(run.pool.ask(rows[:30], chunk=1))
        await wait_until(lambda: len(good.log) >= 3)
        stuck.freeze(health_s=fake_events.HEALTH_S)
        asked = await asking
        assert_all_done(asked, rows[:30], run)
        assert "503" in "".join(run.heard.waits)
        seen = len(stuck.log)
        stuck.thaw()
        # What was given up never came out of it twice: its connections were closed.
        await wait_until(lambda: run.pool._servers[0].out is None)
        asked = await run.pool.ask(rows[30:], chunk=2)
        assert len(asked.completions) == 30
        assert len(stuck.log) > seen


# --- servers that go ---


async def test_an_engine_that_dies_with_all_requests_hanging_costs_only_their_time(
    a_run: Any, rows_of: Rows, wait_until: Any
) -> None:
    rows = rows_of(40)
    async with fakes(2, latency=Latency(0.01)) as (dying, good), a_run(dying.url, good.url, in_flight=6) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: len(dying.log) >= 12)
        await dying.die(hang_s=0.1)
        asked = await asking
        assert_all_done(asked, rows, run)
        in_flight = [entry for entry in dying.log if entry.status is None]
        assert in_flight
        assert {(entry.input_ids or [0])[0] for entry in in_flight} <= {*prompts(good)}
        asked_in_all = Counter(prompts(dying) + prompts(good))
        assert sum(asked_in_all.values()) == 40 + len(in_flight)  # nobody was asked again without need


async def test_a_draining_server_keeps_its_rows_and_gets_no_new_ones(
    a_run: Any, rows_of: Rows, wait_until: Any, gated_server: Any
) -> None:
    rows = rows_of(10)
    async with fakes(2, gated_server) as (draining, good), a_run(draining.url, good.url, in_flight=2) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: len(draining.flights) == len(good.flights) == 2)
        end = asyncio.create_task(draining.drain())
        await wait_until(lambda: run.pool._servers[0].out)
        draining.let(2)
        await end
        good.let(100)
        asked = await asking
        assert_all_done(asked, rows, run)
        assert [entry.status for entry in draining.log] == [200, 200]
        assert len(draining.log) + len(good.log) == 10
        assert not run.aborted


@pytest.mark.parametrize("hang_s", [0.0, 0.05])
async def test_two_of_three_servers_killed_and_restarted_in_a_run(
    a_run: Any, rows_of: Rows, wait_until: Any, hang_s: float
) -> None:
    rows = rows_of(240)
    async with (
        fakes(3, latency=Latency(0.01)) as (one, two, three),
        a_run(*(fake.url for fake in (one, two, three)), in_flight=8) as run,
    ):

        def done() -> int:
            return len(run.kept.completions)

        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: done() >= 30)
        await asyncio.gather(one.die(hang_s=hang_s), two.die(hang_s=hang_s))
        seen, at = (len(one.log), len(two.log)), done()
        await wait_until(lambda: done() >= at + 20)  # the third goes on alone
        assert (len(one.log), len(two.log)) == seen
        await asyncio.gather(one.restart(), two.restart())
        asked = await asking
        assert_all_done(asked, rows, run)
        sent = Counter(number for fake in (one, two, three) for number in prompts(fake))
        lost = sum(entry.status is None for fake in (one, two, three) for entry in fake.log)
        assert len(sent) == 240
        assert sum(sent.values()) <= 240 + 2 * 8  # again only what was in flight on the two
        assert lost <= 2 * 8
        await wait_until(lambda: not any(server.out for server in run.pool._servers))
        seen = (len(one.log), len(two.log))
        await run.pool.ask(rows_of(30, 500), chunk=2)
        assert len(one.log) > seen[0]
        assert len(two.log) > seen[1]


async def test_one_that_comes_back_with_other_weights_stays_out_and_the_others_go_on(
    a_run: Any, rows_of: Rows, wait_until: Any
) -> None:
    async def look_again(before: ServerReport) -> Returned:
        try:
            now = await sglang.report(http[0], before.url, model="")
        except GateRefused as error:  # it was killed once more in between
            return Returned(Return.NOT_YET, str(error.value))
        if now.weight_version != before.weight_version:
            return Returned(Return.OTHER, f"weights were {before.weight_version} and are {now.weight_version}", now)
        return Returned(Return.SAME, "", now)

    rows, http = rows_of(120), []
    async with aiohttp.ClientSession() as session, fakes(2, latency=Latency(0.005)) as (other, good):
        http.append(session)
        async with a_run(other.url, good.url, look_again=look_again) as run:
            asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
            await wait_until(lambda: len(other.log) >= 8)
            await other.die(hang_s=0)
            seen = len(other.log)
            await other.restart(card=replace(CARD, weight_version="v2"))
            await wait_until(lambda: any("another server" in text for text in run.heard.waits))
            asked = await asking
            assert_all_done(asked, rows, run)
            assert len(other.log) == seen
            assert {completion.answer.weight_version for completion in asked.completions} == {"default"}
            assert "weights were default and are v2" in run.pool._servers[0].last_words
            # And when it has the first weights again it is taken.
            await other.restart(card=CARD)
            await wait_until(lambda: run.pool._servers[0].out is None)
            await run.pool.ask(rows_of(20, 500), chunk=2)
            assert len(other.log) > seen


async def test_all_out_waits_with_a_message_then_stops_and_keeps_what_is_finished(
    a_run: Any, rows_of: Rows, wait_until: Any
) -> None:
    rows = rows_of(200)
    async with fakes(2, latency=Latency(0.01)) as both, a_run(*(fake.url for fake in both), wait_s=0.3) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: len(run.kept.completions) >= 10)
        await asyncio.gather(*(fake.die(hang_s=0.02) for fake in both))
        asked = await asking
    finished = [completion.row for completion in asked.completions]
    assert keys([*finished, *asked.pending]) == keys(rows)
    assert Counter(run.kept.keys) == keys(finished)
    assert len(finished) >= 10
    assert not asked.failures
    for fake in both:
        assert fake.url in run.pool.stopped.value
        assert any(fake.url in text and "kept" in text for text in run.heard.waits)
        assert any(fake.url in text and "still out" in text for text in run.heard.waits)


async def test_all_out_for_a_while_is_only_waited_for(a_run: Any, rows_of: Rows, wait_until: Any) -> None:
    rows = rows_of(60)
    async with fakes(2, latency=Latency(0.005)) as both, a_run(*(fake.url for fake in both), wait_s=600) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: len(run.kept.completions) >= 10)
        await asyncio.gather(*(fake.die(hang_s=0) for fake in both))
        await wait_until(lambda: all(server.out for server in run.pool._servers))
        assert not asking.done()
        await both[1].restart()
        asked = await asking
    assert_all_done(asked, rows, run)


# --- servers that are full or answer nonsense ---


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Act(Fault.RATE_LIMITED, 0)])
async def test_a_full_server_is_halved_and_comes_back_and_no_row_fails_by_overload_alone(
    a_run: Any, rows_of: Rows, wait_until: Any, fault: Act | Fault
) -> None:
    rows = rows_of(400)
    full = True

    def rule(number: int, _: Any) -> Act | Fault | None:
        return fault if full and number % 3 else None

    async with FakeServer(rule=rule, latency=Latency(0.001)) as fake:
        async with a_run(fake.url, in_flight=16, retries=0, wait_s=600) as run:
            limiter = run.pool._servers[0].limiter
            asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
            await wait_until(lambda: limiter.limit <= 4)
            full = False
            await wait_until(lambda: limiter.limit == 16)
            asked = await asking
            assert_all_done(asked, rows, run)
            assert run.pool._servers[0].out is None


async def test_a_queue_that_is_too_short_refuses_little(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(300)
    card = replace(CARD, slots=4)
    async with FakeServer(card=card, queue_limit=4, latency=Latency(0.002)) as fake:
        async with a_run(fake.url, in_flight=64, retries=0, wait_s=600) as run:
            asked = await run.pool.ask(rows, chunk=1)
            refused = [entry.status for entry in fake.log].count(503)
            late = [entry.status for entry in fake.log[-200:]].count(503)
    assert_all_done(asked, rows, run)
    assert refused
    assert late <= 20


async def test_one_overloaded_server_of_two_leaves_the_work_to_the_other(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(50)
    async with FakeServer(rule=always(Act(Fault.RATE_LIMITED, 300))) as full, FakeServer() as good:
        async with a_run(full.url, good.url, in_flight=4, retries=0, wait_s=1) as run:
            asked = await run.pool.ask(rows, chunk=1)
    assert_all_done(asked, rows, run)
    assert len(full.log) == 4  # one round, then it is left alone for as long as it asked
    assert len(good.log) == 50


async def test_nothing_but_refusals_ends_after_the_stated_time(a_run: Any, rows_of: Rows) -> None:
    async with FakeServer(rule=always(Fault.UNAVAILABLE)) as fake, a_run(fake.url, wait_s=0.2, retries=0) as run:
        asked = await run.pool.ask(rows_of(6), chunk=1)
    assert len(asked.pending) == 6
    assert "queue is full" in run.pool.stopped.value


async def test_faults_in_a_row_take_a_server_out_until_it_was_looked_at_again(
    a_run: Any, rows_of: Rows, wait_until: Any
) -> None:
    rows, broken, looked = rows_of(80), True, []

    async def look_again(report: ServerReport) -> Returned:
        looked.append(report.url)
        return Returned(Return.NOT_YET if broken else Return.SAME, "its canary: HTTP 500")

    def rule(_: int, __: Any) -> Fault | None:
        return Fault.ERROR_500 if broken else None

    async with FakeServer(rule=rule) as bad, FakeServer(latency=Latency(0.005)) as good:
        async with a_run(bad.url, good.url, in_flight=4, look_again=look_again, retries=30) as run:
            asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
            await wait_until(lambda: len(looked) >= 2)
            seen = len(bad.log)
            assert 8 <= seen <= 8 + 4  # those that were on their way meanwhile
            await wait_until(lambda: len(looked) >= 4)
            assert len(bad.log) == seen
            broken = False
            asked = await asking
            assert_all_done(asked, rows, run)
            await wait_until(lambda: run.pool._servers[0].out is None)
    assert {*looked} == {bad.url}
    assert any("faults in a row" in text and "HTTP 500" in text for text in run.heard.waits)


async def test_a_row_that_failed_here_is_tried_elsewhere(a_run: Any, rows_of: Rows) -> None:
    async with FakeServer(rule=always(Fault.ERROR_500)) as bad, FakeServer() as good:
        async with a_run(bad.url, good.url, retries=1) as run:
            asked = await run.pool.ask(rows_of(1), chunk=1)
    assert (len(asked.completions), len(bad.log), len(good.log)) == (1, 1, 1)


async def test_waiting_costs_no_try(a_run: Any, rows_of: Rows) -> None:
    faults = {**dict.fromkeys(range(1, 6), Fault.UNAVAILABLE), 6: Fault.ERROR_500}
    async with FakeServer(rule=nth(faults)) as fake, a_run(fake.url, retries=1, wait_s=600) as run:
        asked = await run.pool.ask(rows_of(1), chunk=1)
        assert len(fake.log) == 7
    assert (len(asked.completions), asked.failures) == (1, [])


async def test_an_old_connection_costs_no_try(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(6)
    async with FakeServer(rule=always(Fault.RESET_REUSED)) as fake, a_run(fake.url, retries=0, in_flight=1) as run:
        asked = await run.pool.ask(rows, chunk=1)
        assert_all_done(asked, rows, run)
        assert [entry.fault for entry in fake.log] == [None, *[Fault.RESET_REUSED, None] * 5]


async def test_two_old_connections_in_a_row_cost_a_try(a_run: Any, rows_of: Rows, wait_until: Any) -> None:
    async with FakeServer(rule=always(Fault.RESET_REUSED), latency=Latency(0.05)) as fake:
        async with a_run(fake.url, retries=0, in_flight=2) as run:
            assert len((await run.pool.ask(rows_of(2), chunk=1)).completions) == 2  # both over new ones
            asked = await run.pool.ask(rows_of(1, 100), chunk=2)
    assert [failure.tries for failure in asked.failures] == [1]


@pytest.mark.parametrize("setting", ["stop", "record"])
async def test_other_weights_in_the_middle_stop_the_run_or_are_recorded(
    a_run: Any, rows_of: Rows, setting: str
) -> None:
    rows = rows_of(30)
    async with FakeServer(rule=nth({7: Fault.OTHER_WEIGHTS})) as fake:
        async with a_run(fake.url, weights=setting, in_flight=1) as run:
            asked = await run.pool.ask(rows, chunk=1)
    versions = Counter(completion.answer.weight_version for completion in run.kept.completions)
    if setting == "record":
        assert_all_done(asked, rows, run)
        assert versions == {"default": 29, "default-other": 1}
        return
    assert (len(asked.completions), len(asked.pending), len(fake.log)) == (6, 24, 7)
    assert versions == {"default": 6}
    assert "other weights" in run.pool.stopped.what
    assert "engine.weights: record" in run.pool.stopped.remedy
    assert "default-other" in run.pool.stopped.value
