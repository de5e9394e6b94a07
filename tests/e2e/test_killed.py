"""A run whose process is gone is Crashed within seconds, and a retry asks for the rest, whoever ended it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import yaml

from draftmill.serving.fake import Latency
from draftmill.serving.prefect_server import PrefectWorker
from tests.e2e.asked import A_ROW, IN_FLIGHT, ROWS, Asked, run_in_the_middle, until

SERVER_SETTINGS = {"PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_CANCELLING_TIMEOUT_SECONDS": "3"}
"""300 in life."""


@pytest.fixture
def start_worker(stack) -> Iterator[Callable[[str], Awaitable[PrefectWorker]]]:
    """`worker = await start_worker("name")`; it ends with the test."""
    workers: list[PrefectWorker] = []

    async def start(name: str) -> PrefectWorker:
        workers.append(await asyncio.to_thread(stack.worker, name))
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


def watcher(run: str) -> int:
    """The process that would tell of the run's end."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(part.endswith(b"watched.py") for part in command) and run.encode() in command:
            return int(folder.name)
    raise AssertionError("nobody watches over the run")


def is_gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def retried_to_the_end(stack, mill, asked: Asked, run: str, ended_at: float) -> None:
    stack.retry(run)
    found = await asyncio.to_thread(stack.wait, run, lambda run: run["state"]["type"] == "COMPLETED")
    assert found["run_count"] == 2
    assert len(mill.rows()) == len(asked.rows) == ROWS
    asked.only_what_had_to_be(ended_at)


async def test_the_run_is_killed(stack, start_worker, mill, fake_server) -> None:
    worker = await start_worker("killed")
    async with fake_server(latency=A_ROW) as fake:
        run = await run_in_the_middle(stack, mill, fake)
        ended_at = time.time()
        os.kill(*stack.children(worker), signal.SIGKILL)
        crashed = await asyncio.to_thread(stack.wait, run)
        assert crashed["state"]["name"] == "Crashed"
        assert "-9" in crashed["state"]["message"], "the worker knows more than that it is gone"
        # The worker says Crashed once more when it has run the flow's hooks; a retry until then would be hit by that.
        await until(lambda: not stack.children(worker))
        await asyncio.sleep(1)
        await retried_to_the_end(stack, mill, Asked(fake), run, ended_at)
        await until(lambda: stack.task_runs(run)["generate chunk 1/4"] == "Cached")


async def test_its_worker_is_stopped(stack, start_worker, mill, fake_server) -> None:
    """As a new worker is deployed: SIGTERM. Prefect ends the runs of a worker that ends, and says nothing of them."""
    worker = await start_worker("stopped")
    # A worker takes some seconds to end.
    async with fake_server(latency=Latency(first_s=2.0)) as fake:
        run = await run_in_the_middle(stack, mill, fake)
        (child,) = stack.children(worker)
        stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
        await until(lambda: is_gone(child))
        ended_at = time.time()
        await stopping
        crashed = await asyncio.to_thread(stack.wait, run)
        assert crashed["state"]["name"] == "Crashed"
        assert fake.stats()["in_flight"] == 0
        await start_worker("its successor")
        await retried_to_the_end(stack, mill, Asked(fake), run, ended_at)


async def test_its_worker_is_killed_with_it(stack, start_worker, mill, fake_server) -> None:
    worker = await start_worker("killed, too")
    async with fake_server(latency=A_ROW) as fake:
        run = await run_in_the_middle(stack, mill, fake)
        ended_at = time.time()
        (child,) = stack.children(worker)
        await asyncio.to_thread(worker.kill)
        os.kill(child, signal.SIGKILL)
        crashed = await asyncio.to_thread(stack.wait, run)
        assert crashed["state"]["name"] == "Crashed"
        await start_worker("another")
        await retried_to_the_end(stack, mill, Asked(fake), run, ended_at)


async def test_the_whole_machine_is_lost(stack, start_worker, mill, fake_server) -> None:
    """Nobody is left to tell: the run is Running until the automation, or Cancel in the UI, ends it. Then Retry."""
    worker = await start_worker("lost")
    async with fake_server(latency=A_ROW) as fake:
        run = await run_in_the_middle(stack, mill, fake)
        ended_at = time.time()
        (child,) = stack.children(worker)
        os.kill(watcher(run), signal.SIGKILL)
        await asyncio.to_thread(worker.kill)
        os.kill(child, signal.SIGKILL)
        await start_worker("a new machine's")
        assert stack.run(run)["state"]["name"] == "Running"
        stack.cancel(run)
        cancelled = await asyncio.to_thread(stack.wait, run)
        assert cancelled["state"]["name"] == "Cancelled"
        await retried_to_the_end(stack, mill, Asked(fake), run, ended_at)


async def test_a_run_of_the_command_line_is_killed(stack, mill, fake_server) -> None:
    """It has no Retry button: the same command asks for the rest."""
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(latency=A_ROW) as fake:
        mill.url, asked = fake.url, Asked(fake)
        file = mill.folder / "recipe.yaml"
        file.write_text(yaml.safe_dump(mill.data(engine__in_flight=IN_FLIGHT, chunk_rows=8)))
        command = Path(sys.executable).with_name("draftmill"), "run", file
        environment = {**os.environ, **stack.server.environment, "DRAFTMILL_STATE": str(stack.state)}
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        await asked.until(lambda asked: asked.finished >= ROWS // 3)
        (run,) = stack.server.ask(
            "POST", "/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
        )
        ended_at = time.time()
        process.kill()
        await process.wait()
        crashed = await asyncio.to_thread(stack.wait, run["id"])
        assert crashed["state"]["name"] == "Crashed"
        process = await asyncio.create_subprocess_exec(*command, env=environment)
        assert await process.wait() == 0
    assert len(mill.rows()) == len(asked.rows) == ROWS
    asked.only_what_had_to_be(ended_at)
