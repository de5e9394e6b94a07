"""Object storage that is away or odd for a while: the run waits, goes on and completes, and nothing is asked twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.protocol import GenerateRequest
from draftmill.serving.s3_proxy import S3Proxy, Trouble
from draftmill.serving.seaweed import SeaweedFS

EIGHT = [f"prompt {n}" for n in range(8)]
TWELVE = [f"prompt {n}" for n in range(12)]
CANARY = 1

REFUSALS = 12

AWAY_S = 20.0
"""Seconds without an S3 server."""

IN_FLIGHT = 4
ANSWER_S = 0.5
CHUNK_ROWS = 80
"""10 s of requests. A chunk that is open needs the storage again when it is answered, and the next one to open."""


@pytest.fixture
def proxy(seaweed: SeaweedFS, bucket: str, s3_environment: Callable[[dict[str, str]], None]) -> Iterator[S3Proxy]:
    """In front of the session's server; s3:// goes through it."""
    with S3Proxy(seaweed) as proxy:
        s3_environment(proxy.environment)
        yield proxy


def assert_sound(mill: Any, prompts: list[str]) -> None:
    assert sorted(row["prompt_id"] for row in mill.rows()) == sorted(prompts)
    found = verify(open_storage(mill.dataset))
    assert (found.ok, found.rows) == (True, len(prompts)), found.faults


async def two_nights(mill: Any, fake_server: Callable[..., FakeServer]) -> None:
    """Both complete, and each row is asked once."""
    async with fake_server() as fake:
        mill.url = fake.url
        for number, prompts in enumerate((EIGHT, TWELVE), 1):
            mill.prompts(prompts)
            data = await mill.refresh()
            assert (data["state"], data["exit_code"], data["summary"]["manifest"]) == ("Completed", 0, number)
        assert len(fake.log) == len(TWELVE) + 2 * CANARY
    assert_sound(mill, TWELVE)


async def test_throttled_for_a_while(
    s3_mill: Any, proxy: S3Proxy, fake_server: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the middle of the generation on."""
    monkeypatch.setattr("draftmill.dataset.patience.LONGEST_PAUSE_S", 0.5)

    def rule(number: int, request: GenerateRequest) -> None:
        if number == 5:
            proxy.add(Trouble.SLOW_DOWN, times=REFUSALS)

    s3_mill.prompts(EIGHT)
    async with fake_server(rule=rule, latency=Latency(first_s=0.05)) as fake:
        s3_mill.url = fake.url
        data = await s3_mill.refresh()
        assert (data["state"], len(fake.log)) == ("Completed", len(EIGHT) + CANARY)
    assert sum(call.trouble is Trouble.SLOW_DOWN for call in proxy.log) == REFUSALS
    assert_sound(s3_mill, EIGHT)


@pytest.mark.parametrize("trouble", [Trouble.LOST_ANSWER, Trouble.CONFLICT, Trouble.DROPPED])
async def test_the_puts_of_the_manifests_go_wrong(
    s3_mill: Any, proxy: S3Proxy, fake_server: Callable[..., FakeServer], trouble: Trouble
) -> None:
    proxy.add(trouble, method="PUT", path="/manifests/00000001.json", times=2)
    proxy.add(trouble, method="PUT", path="/manifests/00000002.json", times=1)
    await two_nights(s3_mill, fake_server)
    assert sum(call.trouble is trouble for call in proxy.log) == 3


async def test_the_answer_to_every_second_put_is_lost(
    s3_mill: Any, proxy: S3Proxy, fake_server: Callable[..., FakeServer]
) -> None:
    rule = proxy.add(Trouble.LOST_ANSWER, method="PUT", every=2)
    await two_nights(s3_mill, fake_server)
    assert rule.seen > 10


async def test_listings_that_never_show_what_is_new(
    s3_mill: Any, proxy: S3Proxy, fake_server: Callable[..., FakeServer]
) -> None:
    rule = proxy.add(Trouble.STALE_LISTING)
    async with fake_server() as fake:
        s3_mill.url = fake.url
        s3_mill.prompts(EIGHT)
        await s3_mill.refresh()
        s3_mill.prompts(TWELVE)
        data = await s3_mill.refresh()
        assert (data["summary"]["manifest"], data["summary"]["rows"]["kept"], len(fake.log)) == (2, 8, 12 + 2 * CANARY)
    assert rule.put_since
    proxy.clear()
    assert_sound(s3_mill, TWELVE)


async def test_the_server_is_killed_for_20_s_in_the_middle_of_an_upload(
    mill: Any, fake_server: Callable[..., FakeServer], s3_environment: Callable[..., None], tmp_path: Path
) -> None:
    """The run waits and completes, and the engine is asked on meanwhile."""
    prompts = [f"prompt {n}" for n in range(3 * CHUNK_ROWS)]
    mill.prompts(prompts)
    with SeaweedFS(tmp_path / "s3") as server, S3Proxy(server) as proxy:
        s3_environment(proxy.environment)
        mill.place = server.make_bucket("nights") + "/kimi"
        proxy.add(Trouble.DELAYED, method="PUT", path="/shards/", times=1, seconds=1.0)
        async with fake_server(slots=IN_FLIGHT, latency=Latency(first_s=ANSWER_S)) as fake:
            mill.url = fake.url
            run = asyncio.create_task(mill.refresh(engine__in_flight=IN_FLIGHT, chunk_rows=CHUNK_ROWS))
            while not any(call.trouble for call in proxy.log):
                assert not run.done(), run.result()
                await asyncio.sleep(0.05)
            await asyncio.to_thread(server.kill)
            away = time.time()
            await asyncio.sleep(AWAY_S)
            back = time.time()
            assert not run.done()
            await asyncio.to_thread(server.start)
            data = await run
            assert (data["state"], data["summary"]["rows"]["ok"]) == ("Completed", len(prompts)), data["error"]
            meanwhile = [entry for entry in fake.log if away + 2 < entry.started_at < back]
            assert len(fake.log) == len(prompts) + CANARY
        possible = (AWAY_S - 2) / ANSWER_S * IN_FLIGHT
        assert len(meanwhile) > possible / 4, f"{len(meanwhile)} of {possible}"
        assert_sound(mill, prompts)
