"""SIGKILL at any moment: no row twice, none missing, nothing finished asked again but the last second's."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import defaultdict

import pytest

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import Latency, LogEntry

KILLS = 5
ROWS = 80
LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""


def may_be_asked_again(entry: LogEntry, killed_at: float) -> bool:
    """In flight when the process was killed, or finished in the second before."""
    return entry.started_at <= killed_at and (entry.ended_at is None or entry.ended_at >= killed_at - LAST_SECOND_S)


async def test_five_kills_then_to_the_end(mill, fake_server, start_run) -> None:
    dice = random.Random(11)
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    kills: list[float] = []
    async with fake_server(latency=Latency(first_s=0.35)) as fake:
        mill.url = fake.url
        recipe = mill.recipe_file(chunk_rows=16, engine__in_flight=4)
        for _ in range(KILLS):
            process = await start_run(recipe)
            until = len(fake.log) + dice.randint(4, 14)
            while len(fake.log) < until and process.returncode is None:
                await asyncio.sleep(0.01)
            assert process.returncode is None, "the run ended before it could be killed: make it longer"
            process.kill()
            kills.append(time.time())
            await process.wait()
        process = await start_run(recipe)
        assert await process.wait() == 0
    rows = mill.rows()
    assert len(rows) == len({row["row_key"] for row in rows}) == ROWS
    assert verify(open_storage(mill.dataset)).ok
    entries: dict[tuple[int, ...], list[LogEntry]] = defaultdict(list)
    canary = tuple(fake.log[0].input_ids)
    for entry in fake.log:
        entries[tuple(entry.input_ids)].append(entry)
    del entries[canary]
    assert len(entries) == ROWS
    for asked in entries.values():
        for earlier in asked[:-1]:
            assert any(may_be_asked_again(earlier, killed_at) for killed_at in kills), earlier


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stopped_run_ends_soon_aborts_what_is_in_flight_and_keeps_what_is_finished(
    mill, fake_server, start_run, number: signal.Signals
) -> None:
    mill.prompts([f"prompt {n}" for n in range(12)])
    async with fake_server(latency=Latency(first_s=1.0)) as fake:
        mill.url = fake.url
        recipe = mill.recipe_file(engine__in_flight=4)
        process = await start_run(recipe)
        while len(fake.log) < 1 + 4 + 2:
            await asyncio.sleep(0.01)
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 30) == 5
        finished = sum(entry.status == 200 for entry in fake.log[1:])
        assert fake.stats()["in_flight"] == 0, "nothing goes on for a client that has left"
        before = len(fake.log)
        assert await (await start_run(recipe)).wait() == 0
        # Answers sent in the moment of the signal may not have been read any more.
        assert 12 - finished <= len(fake.log) - before - 1 <= 12 - finished + 4
    assert len(mill.rows()) == 12
