"""A run that did not get all of its rows: Retry, a new run, and rerun ask only for those."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
import yaml

from draftmill.serving.faults import Fault
from draftmill.serving.protocol import GenerateRequest
from tests.e2e.asked import A_ROW, Asked, run_in_the_middle, until

ROWS = 24
FAILED = (5, 6, 21)
"""Two rows of the first chunk of eight, one of the last."""

FAILED_TASKS = {"generate chunk 1/3", "generate chunk 3/3"}


@pytest.fixture(scope="module", autouse=True)
def worker(stack) -> None:
    stack.worker()


def failing(number: int, request: GenerateRequest) -> Fault | None:
    """Request 1 is the canary; rows are asked in order, one at a time."""
    return Fault.ERROR_500 if number - 2 in FAILED else None


async def failed_run(stack, mill, fake) -> str:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    mill.url, fake.rule = fake.url, failing
    recipe = mill.data(engine__retries=0, engine__in_flight=1, chunk_rows=8)
    run: str = stack.start("refresh/refresh", recipe=recipe)
    found = await asyncio.to_thread(stack.wait, run)
    assert (found["state"]["type"], len(mill.rows())) == ("FAILED", ROWS - len(FAILED))
    fake.rule = None
    return run


def only_the_failed_were_asked_again(asked: Asked) -> bool:
    assert len(asked.rows) == ROWS
    return [entry.status for entry in asked.again()] == [500] * len(FAILED)


async def test_retry_of_a_failed_run_asks_only_for_the_failed_rows(stack, mill, fake_server) -> None:
    async with fake_server() as fake:
        run = await failed_run(stack, mill, fake)
        # The server learns of task runs through events, a moment later.
        await until(lambda: {name for name, state in stack.task_runs(run).items() if state == "Failed"} == FAILED_TASKS)
        stack.retry(run)
        found = await asyncio.to_thread(stack.wait, run, lambda run: run["state"]["type"] == "COMPLETED")
        assert only_the_failed_were_asked_again(Asked(fake))
    assert found["run_count"] == 2
    # What came is sealed, the failed rows are one chunk.
    await until(lambda: stack.task_runs(run).get("generate chunk 1/1") == "Completed")
    assert stack.task_runs(run)["tokenize slice 1/1"] == "Cached"
    assert len(mill.rows()) == ROWS


async def test_a_new_run_asks_only_for_the_failed_rows(stack, mill, fake_server) -> None:
    async with fake_server() as fake:
        run = await failed_run(stack, mill, fake)
        again = stack.start("refresh/refresh", **stack.run(run)["parameters"])
        found = await asyncio.to_thread(stack.wait, again)
        assert only_the_failed_were_asked_again(Asked(fake))
    assert found["state"]["type"] == "COMPLETED"
    assert len(mill.rows()) == ROWS


async def test_a_run_of_the_deployment_rerun_asks_only_for_the_failed_rows(stack, mill, fake_server) -> None:
    async with fake_server() as fake:
        await failed_run(stack, mill, fake)
        run = stack.start("rerun/rerun", dataset=mill.dataset, generate=True)
        found = await asyncio.to_thread(stack.wait, run)
        assert found["state"]["type"] == "COMPLETED"
        assert only_the_failed_were_asked_again(Asked(fake))
    assert len(mill.rows()) == ROWS


async def test_rerun_of_the_command_line_asks_only_for_the_failed_rows(stack, mill, fake_server) -> None:
    async with fake_server() as fake:
        await failed_run(stack, mill, fake)
        process = await draftmill(stack, "rerun", mill.dataset, "--generate")
        assert await process.wait() == 0
        assert only_the_failed_were_asked_again(Asked(fake))
    assert len(mill.rows()) == ROWS


async def test_a_second_run_at_once_on_the_machine_is_refused_with_words(stack, mill, fake_server) -> None:
    """A person's shell, a deployment of one's own: the journal's lock sees what no limit of Prefect's does."""
    async with fake_server(latency=A_ROW) as fake:
        run = await run_in_the_middle(stack, mill, fake, rows=160, finished=1)
        file = mill.folder / "recipe.yaml"
        file.write_text(yaml.safe_dump(stack.run(run)["parameters"]["recipe"]))
        process = await draftmill(stack, "run", str(file))
        _, words = await process.communicate()
        found = await asyncio.to_thread(stack.wait, run)
    assert process.returncode not in (0, None)
    assert b"another run of this dataset is in progress on this machine" in words
    assert found["state"]["type"] == "COMPLETED"
    assert len(mill.rows()) == len(Asked(fake).requests)


async def draftmill(stack, *arguments: str) -> asyncio.subprocess.Process:
    """A command of a person's on the worker's machine, on the same Prefect server."""
    return await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("draftmill"), *arguments),
        env={**os.environ, **stack.server.environment, "DRAFTMILL_STATE": str(stack.state)},
        stderr=asyncio.subprocess.PIPE,
    )
