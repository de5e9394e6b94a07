"""The pool's ends: a night that is over, a stop at any moment, a cancel, and what the servers hear of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from draftmill.engines import sglang
from draftmill.errors import RunStopped
from draftmill.generation import retry, watch
from draftmill.generation.night import Night
from draftmill.generation.tickets import Asked
from draftmill.records import Row
from draftmill.serving.fake import CARD, FakeServer, Latency
from draftmill.serving.faults import Fault, always, by_chance

Rows = Callable[..., list[Row]]


def assert_once(asked: Asked, rows: list[Row]) -> None:
    """And what is kept of them is what came out as finished."""
    out = [*(c.row for c in asked.completions), *(f.row for f in asked.failures), *asked.pending]
    assert Counter(row.row_key for row in out) == Counter(row.row_key for row in rows)


def enough() -> RunStopped:
    return RunStopped("enough", value="", expected="", remedy="")


def in_s(seconds: float) -> Night:
    return Night(time.monotonic() + seconds, "06:00")


# --- a night ---


async def test_no_row_is_sent_that_could_not_finish(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(5)
    async with FakeServer() as fake, a_run(fake.url, night=in_s(1000)) as run:
        run.pool._servers[0].pace.note(2000.0, 50)
        asked = await run.pool.ask(rows, chunk=1)
        assert len((await run.pool.ask(rows_of(2, 100), chunk=2)).pending) == 2
    assert (len(asked.pending), len(fake.log)) == (5, 0)
    assert "--until 06:00" in str(run.pool.stopped)


async def test_rows_that_could_finish_are_sent(a_run: Any, rows_of: Rows) -> None:
    async with FakeServer() as fake, a_run(fake.url, night=in_s(1000)) as run:
        run.pool._servers[0].pace.note(500.0, 50)
        asked = await run.pool.ask(rows_of(5), chunk=1)
    assert (len(asked.completions), run.pool.stopped) == (5, None)


async def test_what_is_in_flight_when_sending_ends_may_still_finish(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    rows = rows_of(6)
    async with gated_server() as fake, a_run(fake.url, in_flight=2, night=in_s(1000)) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        await wait_until(lambda: len(fake.flights) == 2)
        for _ in range(60):
            run.pool._servers[0].pace.note(2000.0, 50)
        fake.let(2)
        asked = await asking
    assert_once(asked, rows)
    assert (len(asked.completions), len(asked.pending), len(fake.log)) == (2, 4, 2)
    assert not run.aborted


@pytest.mark.parametrize("in_flight", [2, 12])
async def test_when_the_night_is_over_what_is_in_flight_ends_and_the_servers_hear_of_it(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any, in_flight: int
) -> None:
    rows, told = rows_of(20), []

    class Told(gated_server):  # type: ignore[misc]
        def abort(self, prefix: str, *, everything: bool) -> None:
            told.append(prefix)
            super().abort(prefix, everything=everything)

    async with Told() as fake:
        night = Night(time.monotonic() + 3600, "06:00")
        async with a_run(fake.url, in_flight=in_flight, night=night) as run:
            asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
            await wait_until(lambda: len(fake.flights) == in_flight)
            run.pool._night = replace(night, ends_s=time.monotonic())
            asked = await asking
        await wait_until(lambda: not fake.flights)
        sent = sorted(entry.rid or "" for entry in fake.log)
    assert_once(asked, rows)
    assert (len(asked.pending), len(sent)) == (20, in_flight)
    assert sorted(told) == sent  # though the pool is left at once
    assert "--until 06:00" in str(run.pool.stopped)


async def test_the_end_of_a_night_is_no_fault_of_the_servers(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    async with gated_server() as fake, a_run(fake.url, in_flight=12, night=in_s(3600)) as run:
        asking = asyncio.create_task(run.pool.ask(rows_of(20), chunk=1))
        await wait_until(lambda: len(fake.flights) == 12)
        run.pool._night = in_s(0)
        await asking
        assert run.heard.waits == []  # none was taken out
        assert run.pool._servers[0].out is None


async def test_a_night_ends_in_time_when_no_server_can_be_asked(a_run: Any, rows_of: Rows) -> None:
    async with FakeServer() as gone:
        pass
    async with a_run(gone.url, wait_s=3600, night=in_s(0.1)) as run, asyncio.timeout(5):
        asked = await run.pool.ask(rows_of(4), chunk=1)
    assert len(asked.pending) == 4
    assert "--until 06:00" in str(run.pool.stopped)


async def test_a_night_ends_in_time_while_rows_pause(a_run: Any, rows_of: Rows, monkeypatch: Any) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 3600.0)
    async with FakeServer(rule=always(Fault.ERROR_500)) as fake, a_run(fake.url, night=in_s(0.2)) as run:
        async with asyncio.timeout(5):
            asked = await run.pool.ask(rows_of(4), chunk=1)
    assert (len(asked.pending), len(fake.log)) == (4, 4)


# --- a stop ---


@pytest.mark.parametrize("after", [0, 1, 5, 20])
async def test_a_stop_in_the_midst_of_everything(
    a_run: Any, rows_of: Rows, wait_until: Any, monkeypatch: Any, after: int
) -> None:
    monkeypatch.setattr(watch, "QUIET_S", 0.02)
    faults = {Fault.ERROR_500: 0.1, Fault.RESET_MIDWAY: 0.1, Fault.UNAVAILABLE: 0.1, Fault.ABORTED: 0.1}
    chunks = [rows_of(30, 100 * number) for number in range(4)]
    async with (
        FakeServer(rule=by_chance(faults, seed=after), latency=Latency(0.003)) as one,
        FakeServer(rule=by_chance(faults, seed=9), latency=Latency(0.003)) as two,
        a_run(one.url, two.url, in_flight=4, retries=3, wait_s=600) as run,
    ):

        async def chain(number: int, rows: list[Row]) -> Asked:
            async with run.pool.opened(number, len(rows)):
                asked: Asked = await run.pool.ask(rows, chunk=number)
                return asked

        chains = [asyncio.create_task(chain(number, rows)) for number, rows in enumerate(chunks)]
        await wait_until(lambda: len(run.kept.completions) >= after)
        if after == 5:
            await two.die(hang_s=0)
        run.pool.stop(enough())
        results = await asyncio.gather(*chains)
    for asked, rows in zip(results, chunks, strict=True):
        assert_once(asked, rows)
    finished = [completion for asked in results for completion in asked.completions]
    assert Counter(map(id, finished)) == Counter(map(id, run.kept.completions))
    assert sum(len(asked.pending) for asked in results) > 0


async def test_a_stopped_run_does_not_wait_for_a_server_that_is_dead(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(watch, "QUIET_S", 0.02)
    monkeypatch.setattr(retry, "LONGEST_REST_S", 0.01)
    async with gated_server() as fake, a_run(fake.url, in_flight=3) as run:
        asking = asyncio.create_task(run.pool.ask(rows_of(9), chunk=1))
        await wait_until(lambda: len(fake.flights) == 3)
        run.pool.stop(enough())
        for site in list(fake._runner.sites):
            await site.stop()
        async with asyncio.timeout(60):
            assert len((await asking).pending) == 9


# --- given up ---


async def test_a_request_that_is_given_up_before_it_left_is_sent_again(
    a_run: Any, rows_of: Rows, wait_until: Any
) -> None:
    rows = rows_of(3)
    async with FakeServer() as fake, a_run(fake.url, in_flight=2) as run:
        (server,) = run.pool._servers
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        while not server.flights:
            await asyncio.sleep(0)
        for flight in list(server.flights.values()):
            run.pool._watch.give_up(server, flight, "gone in the very moment")
        async with asyncio.timeout(60):
            asked = await asking
    assert_once(asked, rows)
    assert len(asked.completions) == 3


async def test_an_error_in_the_moment_of_sending_stops_the_run(a_run: Any, rows_of: Rows, answer_of: Any) -> None:
    rows = rows_of(3)
    priors = {rows[1].key: answer_of(range(100))}  # nothing is left of the budget: a programmer's error
    async with FakeServer() as fake, a_run(fake.url) as run:
        async with asyncio.timeout(5):
            asked = await run.pool.ask(rows, chunk=1, priors=priors)
        assert_once(asked, rows)
        assert run.pool.stopped is not None


# --- a cancel ---


class Deaf(FakeServer):
    """Takes aborts and never answers them."""

    async def _abort(self, http: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("kind", [FakeServer, Deaf])
async def test_a_cancel_of_the_whole_ends_at_once_and_aborts_what_is_in_flight(
    a_run: Any, rows_of: Rows, wait_until: Any, monkeypatch: Any, kind: type[FakeServer]
) -> None:
    monkeypatch.setattr(sglang, "_ABORT_TIMEOUT", aiohttp.ClientTimeout(total=0.1))
    card, runs = replace(CARD, slots=2), []
    async with kind(latency=Latency(3600.0), card=card) as one, kind(latency=Latency(3600.0), card=card) as two:

        async def work() -> None:
            async with a_run(one.url, two.url, in_flight=4) as run:
                runs.append(run)
                async with run.pool.opened(1, 50):
                    await run.pool.ask(rows_of(50), chunk=1)

        working = asyncio.create_task(work())
        await wait_until(lambda: len(one.flights) == len(two.flights) == 4)
        working.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await working
        sent = sorted(entry.rid or "" for fake in (one, two) for entry in fake.log)
        assert sorted(runs[0].aborted) == sent
        await wait_until(lambda: not one.flights and not two.flights)
    assert len(sent) == 8
    assert not runs[0].pool._tasks


async def test_a_cancel_in_the_moment_of_giving_up_is_a_cancel(
    a_run: Any, rows_of: Rows, wait_until: Any, gated_server: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 3600.0)  # whoever takes it for a fault pauses now
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 3600.0)
    before, runs = asyncio.all_tasks(), []
    async with gated_server() as fake:

        async def work() -> None:
            async with a_run(fake.url, in_flight=4) as run:
                runs.append(run)
                await run.pool.ask(rows_of(8), chunk=1)

        working = asyncio.create_task(work())
        await wait_until(lambda: len(fake.flights) == 4)
        (server,) = runs[0].pool._servers
        for flight in list(server.flights.values()):
            runs[0].pool._watch.give_up(server, flight, "gone")
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert not runs[0].pool._tasks
        assert {*runs[0].aborted} == {entry.rid for entry in fake.log}
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}


async def test_a_cancel_while_rows_pause_and_servers_are_out_leaves_no_task_behind(
    a_run: Any, rows_of: Rows, wait_until: Any
) -> None:
    before = asyncio.all_tasks()
    async with FakeServer() as gone:
        pass
    async with FakeServer(rule=always(Fault.ERROR_500)) as bad:

        async def work() -> None:
            async with a_run(gone.url, bad.url, retries=100, wait_s=3600) as run:
                runs.append(run)
                await run.pool.ask(rows_of(20), chunk=1)

        runs: list[Any] = []
        working = asyncio.create_task(work())
        await wait_until(lambda: runs and len(runs[0].heard.waits) >= 2 and len(bad.log) > 4)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert not runs[0].pool._tasks
    assert asyncio.all_tasks() <= before | {asyncio.current_task()}
