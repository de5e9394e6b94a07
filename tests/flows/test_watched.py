"""The small process beside a run: it tells of the run's end what nobody else has told, and nothing that is not so.

Whole runs that are killed: tests/e2e/test_killed.py.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL
from prefect.states import Completed, Crashed, Running

from draftmill.serving.fake import Latency
from draftmill.serving.process import free_ports
from tasks import watched
from tasks.watched import GONE

PAUSE_S = 0.1
"""5 in life."""

WAIT_S = 60
"""Seconds for a moment that a test waits for."""


@flow
def nothing() -> None:
    pass


@dataclass
class Run:
    """A run as the server has it, begun by nobody's process."""

    client: PrefectClient
    id: UUID

    async def state(self) -> State:
        found = (await self.client.read_flow_run(self.id)).state
        assert found is not None
        return found

    @asynccontextmanager
    async def watched(self, url: str | None = None) -> AsyncIterator[None]:
        """Until the end a watcher waits for that of this run; then it is done. `url`: of its server."""
        state = (await self.state()).id
        watcher = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", watched.__file__, str(self.id), str(state), str(PAUSE_S)),
            env={**os.environ, "PREFECT_API_URL": url or PREFECT_API_URL.value(), "PREFECT_CLIENT_MAX_RETRIES": "0"},
            stdin=asyncio.subprocess.PIPE,
        )
        try:
            yield
            assert watcher.returncode is None, "it waits as long as the run's process is there"
            assert watcher.stdin is not None
            watcher.stdin.close()
            assert await asyncio.wait_for(watcher.wait(), WAIT_S) == 0
        finally:
            if watcher.returncode is None:
                watcher.kill()
                await watcher.wait()


@pytest.fixture
async def client() -> AsyncIterator[PrefectClient]:
    async with get_client() as client:
        yield client


@pytest.fixture
async def run(client: PrefectClient) -> Run:
    return Run(client, (await client.create_flow_run(nothing, state=Running())).id)


async def test_a_killed_run_is_crashed_and_says_why(mill, fake_server, start_run, client: PrefectClient) -> None:
    mill.prompts([f"prompt {n}" for n in range(8)])
    async with fake_server(latency=Latency(first_s=600)) as fake:
        mill.url = fake.url
        process = await start_run(mill.recipe_file(), constants={"tasks.watched.PAUSE_S": PAUSE_S})
        async with asyncio.timeout(WAIT_S):
            while not fake.log:
                await asyncio.sleep(0.01)
            (found,) = await client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
            process.kill()
            run = Run(client, found.id)
            while (await run.state()).is_running():
                await asyncio.sleep(0.1)
    assert (await run.state()).is_crashed()
    assert (await run.state()).message == GONE


async def test_a_run_whose_process_is_gone_is_crashed(run: Run) -> None:
    async with run.watched():
        assert (await run.state()).is_running()
    assert (await run.state()).is_crashed()
    assert (await run.state()).message == GONE


@pytest.mark.parametrize("told", [Completed(message="3 new rows"), Crashed(message="status -9, says its worker")])
async def test_what_was_told_already_stays(run: Run, told: State) -> None:
    async with run.watched():
        await run.client.set_flow_run_state(run.id, told, force=True)
    assert (await run.state()).message == told.message


async def test_a_run_that_was_retried_meanwhile_goes_on(run: Run) -> None:
    async with run.watched():
        await run.client.set_flow_run_state(run.id, Running(), force=True)
        again = await run.state()
    assert (await run.state()).id == again.id
    assert (await run.state()).is_running()


async def test_a_run_that_was_deleted_is_nobodys(run: Run) -> None:
    async with run.watched():
        await run.client.delete_flow_run(run.id)


async def test_a_server_that_is_away_for_a_moment_is_told_afterwards(run: Run) -> None:
    (port,) = free_ports(1)
    url = PREFECT_API_URL.value()
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, server_port = address.partition(":")
    refused = 0

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refused
        if refused < 3:
            refused += 1
            writer.close()
            return
        up, down = await asyncio.open_connection(host, int(server_port))
        await asyncio.gather(_pump(reader, down), _pump(up, writer))

    async with await asyncio.start_server(pass_on, "127.0.0.1", port):
        async with run.watched(f"http://127.0.0.1:{port}/{path}"):
            pass
    assert refused == 3
    assert (await run.state()).message == GONE


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(65536):
        writer.write(block)
    writer.close()
