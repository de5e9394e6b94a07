"""Any schedule of faults, kills, freezes and restarts over several servers: every row once, nothing finished lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.engines import _pages
from draftmill.errors import RunStopped
from draftmill.generation import pace, retry, watch
from draftmill.generation.tickets import Asked
from draftmill.records import Row
from draftmill.serving import fake_events
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.faults import Fault, by_chance

Rows = Callable[..., list[Row]]
# Not those that are an answer to another prompt or with other ids: the fake's log is compared with what is kept.
FAULTS = [
    Fault.ERROR_500,
    Fault.BAD_GATEWAY,
    Fault.UNAVAILABLE,
    Fault.RESET_BEFORE,
    Fault.RESET_REUSED,
    Fault.RESET_MIDWAY,
    Fault.TRUNCATED_JSON,
    Fault.ABORTED,
    Fault.OTHER_RID,
    Fault.HANG,
]
EVENTS = ["restart", "die", "freeze", "drain"]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with (
        mock.patch.object(watch, "QUIET_S", 0.02),
        mock.patch.object(retry, "LONGEST_REST_S", 0.01),
        mock.patch.object(_pages, "AT_ONCE_S", 0.2),
        mock.patch.object(fake_events, "HEALTH_S", 0.3),
        mock.patch.multiple(pace, UNMEASURED_S=0.3, UNMEASURED_S_PER_ID=0.0, LEAST_S=0.3),
    ):
        yield


async def happen(fake: FakeServer, event: str) -> None:
    """What happens to it, and that it comes back in the end."""
    if event == "freeze":
        fake.freeze(health_s=fake_events.HEALTH_S)
        await asyncio.sleep(0.4)
        fake.thaw()
        return
    if event == "die":
        await fake.die(hang_s=0.03)
        await asyncio.sleep(0.05)
    if event == "drain":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await fake.drain()
    await fake.restart()


@given(
    num_servers=st.integers(1, 3),
    faults=st.dictionaries(st.sampled_from(FAULTS), st.floats(0.02, 0.15), max_size=4),
    schedule=st.lists(st.tuples(st.integers(1, 15), st.integers(0, 2), st.sampled_from(EVENTS)), max_size=4),
    sizes=st.lists(st.integers(0, 25), min_size=1, max_size=3),
    in_flight=st.integers(1, 8),
    stop_after=st.none() | st.integers(0, 40),
    seed=st.integers(0, 1000),
)
@settings(max_examples=15)
def test_every_row_comes_out_once_and_what_is_kept_is_what_is_finished(
    a_run: Any,
    rows_of: Rows,
    num_servers: int,
    faults: dict[Fault, float],
    schedule: list[tuple[int, int, str]],
    sizes: list[int],
    in_flight: int,
    stop_after: int | None,
    seed: int,
) -> None:
    async def go() -> None:
        chunks = [rows_of(size, 100 * number) for number, size in enumerate(sizes)]
        async with contextlib.AsyncExitStack() as stack:
            fakes = [
                await stack.enter_async_context(
                    FakeServer(rule=by_chance(faults, seed=seed + number), latency=Latency(0.003))
                )
                for number in range(num_servers)
            ]
            urls = [fake.url for fake in fakes]
            run = await stack.enter_async_context(a_run(*urls, retries=2, wait_s=600, in_flight=in_flight))

            async def chain(number: int, rows: list[Row]) -> Asked:
                async with run.pool.opened(number, len(rows)):
                    asked: Asked = await run.pool.ask(rows, chunk=number)
                    return asked

            async def play() -> None:
                for after, server, event in schedule:
                    wanted = len(run.kept.completions) + after
                    while len(run.kept.completions) < wanted:
                        await asyncio.sleep(0.002)
                    await happen(fakes[server % num_servers], event)

            async def stop() -> None:
                while len(run.kept.completions) < (stop_after or 0):
                    await asyncio.sleep(0.001)
                run.pool.stop(RunStopped("enough", value="", expected="", remedy=""))

            playing = [asyncio.create_task(play())]
            if stop_after is not None:
                playing.append(asyncio.create_task(stop()))
            async with asyncio.timeout(60):
                results = await asyncio.gather(*(chain(number, rows) for number, rows in enumerate(chunks)))
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            check(run, results, chunks, fakes, stopped=stop_after is not None)

    asyncio.run(go())


def check(run: Any, results: list[Asked], chunks: list[list[Row]], fakes: list[FakeServer], *, stopped: bool) -> None:
    for asked, rows in zip(results, chunks, strict=True):
        out = [*(c.row for c in asked.completions), *(f.row for f in asked.failures), *asked.pending]
        assert Counter(row.key for row in out) == Counter(row.key for row in rows)
        assert not asked.pending or stopped
        assert all(failure.tries == 3 for failure in asked.failures)
    finished = [completion for asked in results for completion in asked.completions]
    assert Counter(map(id, finished)) == Counter(map(id, run.kept.completions))
    assert {*Counter(run.kept.keys).values()} <= {1}
    # What is kept was sent by a server, for that very prompt.
    sent = {(tuple(entry.input_ids or ()), tuple(entry.output_ids or ())) for fake in fakes for entry in fake.log}
    kept = {(tuple(c.row.prompt_ids.tolist()), tuple(c.answer.output_ids.tolist())) for c in run.kept.completions}
    assert kept <= sent
    assert run.pool.counts.done == sum(len(asked.completions) + len(asked.failures) for asked in results)
