"""Whatever ends a run ends it by its exit status, keeps what is finished, and leaves the next run only the rest."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.fake_answers import Markers, Seeded
from draftmill.serving.faults import Fault, always
from draftmill.serving.refusals import NOT_FOUND, Refusal

ROWS = 300
AT = 120
"""The number of the request at which it happens: in the middle of a chunk, others before and behind it."""

IN_FLIGHT = 16
LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""

LARGEST_FILE_BYTES = 3 << 19
"""A journal of about half the rows, of 400 ids each."""

pytestmark = pytest.mark.timeout(300)


@dataclass
class Case:
    """One ending: what happens at request AT, and how the server is mended afterwards."""

    happens: Callable[[FakeServer], Any]
    mended: Callable[[FakeServer], Any]
    words: str
    changes: dict[str, Any]


async def nowhere(_: object) -> Refusal:
    return NOT_FOUND


def with_key(fake: FakeServer, key: str | None) -> None:
    fake.card = replace(fake.card, api_key=key)


def restarted(fake: FakeServer) -> Any:
    return fake.restart()


ENDINGS = {
    "a key that is refused": Case(lambda fake: with_key(fake, "another"), lambda fake: with_key(fake, None), "401", {}),
    "another server": Case(
        # It has been the right one, so it is waited for.
        lambda fake: setattr(fake, "answer", nowhere),
        lambda fake: delattr(fake, "answer"),
        "404",
        {"engine__wait_s": 2},
    ),
    "other weights": Case(
        lambda fake: setattr(fake, "rule", always(Fault.OTHER_WEIGHTS)),
        lambda fake: setattr(fake, "rule", None),
        "weights",
        {},
    ),
    "mostly bad answers": Case(
        lambda fake: setattr(fake, "rule", always(Fault.NO_END)),
        lambda fake: setattr(fake, "rule", None),
        "breaker",
        {"breaker": {"share": 0.5, "window": 50}},
    ),
    "no server left": Case(
        lambda fake: asyncio.ensure_future(fake.die(hang_s=0.2)), restarted, "no server", {"engine__wait_s": 2}
    ),
}


def finished(fake: FakeServer, before: float = math.inf) -> set[tuple[int, ...]]:
    """Prompts that were answered well before this moment."""
    done = [entry for entry in fake.log if entry.status == 200 and entry.fault is None]
    return {tuple(entry.input_ids or ()) for entry in done if (entry.ended_at or 0) < before}


def prompts_of(fake: FakeServer, after: int) -> list[tuple[int, ...]]:
    """What was asked behind so many requests and the canary of the run that asked it."""
    return [tuple(entry.input_ids or ()) for entry in fake.log[after + 1 :]]


def assert_complete(mill: Any, quarantined: int = 0) -> None:
    keys = [row["row_key"] for kind in ("shards", "quarantine") for row in mill.rows(kind)]
    assert (len(keys), len(set(keys)), len(mill.rows("quarantine"))) == (ROWS, ROWS, quarantined)
    assert verify(open_storage(mill.dataset)).ok


@pytest.mark.parametrize("name", ENDINGS)
async def test_what_a_server_does(mill: Any, fake_server: Callable[..., FakeServer], name: str) -> None:
    case = ENDINGS[name]
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    mill.changes = {"chunk_rows": 50, "engine__in_flight": IN_FLIGHT, **case.changes}
    happening: list[Any] = []

    def rule(number: int, request: object) -> None:
        if number == AT:
            happening.append(case.happens(fake))

    async with fake_server(rule=rule, slots=IN_FLIGHT, latency=Latency(first_s=0.05)) as fake:
        mill.url = fake.url
        data = await mill.refresh()
        rows = data["summary"]["rows"]
        assert (data["state"], data["exit_code"], case.words in data["error"]) == ("RowsMissing", 5, True), data
        assert rows["ok"] >= AT - IN_FLIGHT - 1
        assert rows["ok"] + rows["quarantined"] + rows["pending"] == ROWS
        done, before = finished(fake), len(fake.log)
        if asyncio.iscoroutine(mend := case.mended(fake)):
            await mend
        data = await mill.refresh()
        assert data["summary"]["requests"] == rows["pending"]
        assert not done & set(prompts_of(fake, before))
    assert_complete(mill, rows["quarantined"])


async def test_sigterm(mill: Any, fake_server: Callable[..., FakeServer], start_run: Callable[..., Any]) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(slots=IN_FLIGHT, latency=Latency(first_s=0.2)) as fake:
        mill.url = fake.url
        recipe = mill.recipe_file(chunk_rows=50, engine__in_flight=IN_FLIGHT)
        process = await start_run(recipe)
        while len(fake.log) < AT:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        told = time.time()
        assert await asyncio.wait_for(process.wait(), 30) == 5
        assert fake.stats()["in_flight"] == 0, "nothing goes on for a client that has left"
        # An answer that was sent in the very moment of the signal may not have been read any more.
        done, before = finished(fake, before=told - 0.1), len(fake.log)
        assert await (await start_run(recipe)).wait() == 0
        assert not done & set(prompts_of(fake, before))
    assert_complete(mill)


async def test_a_full_disk(mill: Any, fake_server: Callable[..., FakeServer], start_run: Callable[..., Any]) -> None:
    """The journal cannot be written: no row is generated for nothing any more, and what it holds is good."""
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    long = Seeded(7, Markers(end_id=2), range(1000, 40000), (400, 400))
    async with fake_server(long, slots=IN_FLIGHT, latency=Latency(first_s=0.4)) as fake:
        mill.url = fake.url
        recipe = mill.recipe_file(chunk_rows=50, engine__in_flight=IN_FLIGHT, sampling__max_new_tokens=500)
        process = await start_run(recipe, largest_file_bytes=LARGEST_FILE_BYTES)
        status = await asyncio.wait_for(process.wait(), 120)
        error = (mill.folder / "recipe.err").read_text()
        assert (status, "the journal" in error) == (1, True), error
        assert len(fake.log) < ROWS
        # Nothing is sent any more once a write has failed; what that write held had come in within the second before.
        failed = max(entry.started_at for entry in fake.log)
        done, before = finished(fake, before=failed - LAST_SECOND_S), len(fake.log)
        assert await (await start_run(recipe)).wait() == 0
        assert len(done) > ROWS / 10
        assert not done & set(prompts_of(fake, before))
    assert_complete(mill)
