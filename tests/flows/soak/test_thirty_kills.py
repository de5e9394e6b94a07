"""30 SIGKILLs at random moments of one run: no row lost, none twice, little asked again."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.fake_log import LogEntry

KILLS = 30
ROWS = 2400
IN_FLIGHT = 32
ANSWER_S = 0.5

SOONEST_S, LATEST_S = 0.0, 3.0
"""A kill comes so long after the run's first request; in every sixth run so long after the process was started."""

LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""


def may_be_asked_again(entry: LogEntry, killed_at: float) -> bool:
    """In flight when the process was killed, or finished in the second before."""
    return entry.started_at <= killed_at and (entry.ended_at is None or entry.ended_at >= killed_at - LAST_SECOND_S)


@pytest.mark.timeout(1800)
async def test_thirty_kills(
    mill: Any,
    fake_server: Callable[..., FakeServer],
    start_run: Callable[..., Any],
    told: Callable[..., None],
) -> None:
    dice = random.Random(30)
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    kills: list[float] = []
    began = time.monotonic()
    async with fake_server(slots=IN_FLIGHT, latency=Latency(first_s=ANSWER_S)) as fake:
        mill.url = fake.url
        recipe = mill.recipe_file(chunk_rows=100, engine__in_flight=IN_FLIGHT)
        for number in range(KILLS):
            process, before = await start_run(recipe), len(fake.log)
            while number % 6 and len(fake.log) == before and process.returncode is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.uniform(SOONEST_S, LATEST_S))
            assert process.returncode is None, "the run ended before it could be killed: make it longer"
            process.kill()
            kills.append(time.time())
            await process.wait()
        process = await start_run(recipe)
        assert await process.wait() == 0
    rows = mill.rows()
    assert len(rows) == len({row["row_key"] for row in rows}) == ROWS
    assert verify(open_storage(mill.dataset)).ok
    asked: dict[tuple[int, ...], list[LogEntry]] = defaultdict(list)
    canary = tuple(fake.log[0].input_ids or ())
    for entry in fake.log:
        asked[tuple(entry.input_ids or ())].append(entry)
    canaries = len(asked.pop(canary))
    assert len(asked) == ROWS
    again = sum(len(entries) - 1 for entries in asked.values())
    allowed = sum(may_be_asked_again(entry, killed_at) for killed_at in kills for entry in fake.log)
    told(
        kills=len(kills),
        rows=ROWS,
        canaries=canaries,
        asked_again=again,
        in_flight_or_finished_in_the_last_second=allowed,
        most_often_asked=Counter(len(entries) for entries in asked.values()).most_common(),
        seconds=round(time.monotonic() - began),
    )
    for entries in asked.values():
        for earlier in entries[:-1]:
            assert any(may_be_asked_again(earlier, killed_at) for killed_at in kills), earlier
    assert 0 < again <= allowed
