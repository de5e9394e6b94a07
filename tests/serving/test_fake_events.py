"""What happens to the fake server as a whole, as a client sees it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from draftmill.serving.fake import CARD, FakeServer, Latency
from draftmill.serving.fake_answers import in_order

PROMPT = [5, 6, 7]


@pytest.fixture
async def fake() -> AsyncIterator[FakeServer]:
    async with FakeServer(in_order([[8, 9, 2]]), card=replace(CARD, slots=8), latency=Latency(first_s=0.1)) as fake:
        yield fake


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def flying(client: Any, fake: FakeServer, rid: str) -> asyncio.Task[Any]:
    task = asyncio.create_task(client.generate(fake.url, PROMPT, rid=rid))
    await until(lambda: rid in fake.flights and fake.flights[rid].running)
    return task


async def status(client: Any, fake: FakeServer, page: str) -> int:
    """Of a page, over a connection of its own."""
    number: int = (await client.ask("GET", f"{fake.url}/{page}", headers={"Connection": "close"}))[0]
    return number


async def test_a_frozen_server_answers_pages_and_nothing_else(client: Any, fake: FakeServer) -> None:
    task = await flying(client, fake, "one")
    fake.freeze(health_s=0.3)
    assert [await status(client, fake, page) for page in ("model_info", "v1/loads", "ready")] == [200, 200, 200]
    assert await status(client, fake, "health") == 503
    await client.ask("POST", f"{fake.url}/abort_request", json={"rid": "one"})
    assert not task.done()
    fake.thaw()
    assert (await task)[1]["output_ids"] == [8, 9, 2]
    assert await status(client, fake, "health") == 200


async def test_a_dying_server_hangs_then_closes_everything_and_refuses(client: Any, fake: FakeServer) -> None:
    before = await flying(client, fake, "before")
    death = asyncio.create_task(fake.die(hang_s=0.4))
    await asyncio.sleep(0)
    meanwhile = await flying(client, fake, "meanwhile")
    assert await status(client, fake, "model_info") == 200
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in (before, meanwhile, death))
    await death
    for task in (before, meanwhile):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await task
    with pytest.raises(aiohttp.ClientConnectorError):
        await status(client, fake, "health")
    assert fake.gone.is_set()
    assert [entry.status for entry in fake.log] == [None, None]
    assert all(entry.ended_at is not None for entry in fake.log)


async def test_a_restarted_server_is_at_the_same_port_with_other_weights(client: Any, fake: FakeServer) -> None:
    url = fake.url
    await fake.die(hang_s=0)
    await fake.restart(card=replace(CARD, weight_version="v2"))
    assert fake.url == url
    _, body = await client.generate(url, PROMPT)
    assert (body["output_ids"], body["meta_info"]["weight_version"]) == ([8, 9, 2], "v2")
    assert await status(client, fake, "health") == 200
    assert len(fake.log) == 1


async def test_a_restart_kills_what_still_runs(client: Any, fake: FakeServer) -> None:
    task = await flying(client, fake, "one")
    await fake.restart()
    with pytest.raises(aiohttp.ClientError):
        await task
    assert (await client.generate(fake.url, PROMPT))[0] == 200


async def test_a_draining_server_finishes_what_was_there_and_resets_what_came(client: Any) -> None:
    async with FakeServer(in_order([[8, 9]]), card=replace(CARD, slots=2), latency=Latency(first_s=0.2)) as fake:
        early = [await flying(client, fake, rid) for rid in ("a", "b")]
        end = asyncio.create_task(fake.drain())
        await asyncio.sleep(0)
        late = asyncio.create_task(client.generate(fake.url, PROMPT, rid="late"))
        await until(lambda: "late" in fake.flights)
        assert await status(client, fake, "health") == 503
        assert [(await task)[0] for task in early] == [200, 200]
        with pytest.raises(aiohttp.ClientError):
            await late
        await end
        with pytest.raises(aiohttp.ClientConnectorError):
            await status(client, fake, "health")


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "draftmill.serving.fake", "--first-s", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.mark.parametrize(("event", "options"), [("die", {"hang_s": 0.1}), ("drain", None)])
async def test_a_process_ends_when_it_is_told_to(client: Any, process: Any, event: str, options: Any) -> None:
    server, url = process
    assert (await client.ask("POST", f"{url}/fake/{event}", json=options))[0] == 202
    _, errors = await asyncio.to_thread(server.communicate, timeout=30)
    assert (server.returncode, errors) == (0, "")


async def test_a_process_freezes_and_thaws(client: Any, process: Any) -> None:
    _, url = process
    await client.ask("POST", f"{url}/fake/freeze", json={"health_s": 0.1})
    assert (await client.ask("GET", f"{url}/health"))[0] == 503
    await client.ask("POST", f"{url}/fake/thaw")
    assert (await client.ask("GET", f"{url}/health"))[0] == 200
