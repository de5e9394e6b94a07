"""Alarms and paths as an operator meets them: the deployments of the repository, a worker in another folder."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from draftmill.serving.fake import Latency
from tests.e2e.asked import Asked

# A minute and a half of silence, beside everything else.
pytestmark = pytest.mark.timeout(600)

ROWS = 16

HEARTBEAT_S, SILENT_AFTER = "30", "90s"
"""As often as Prefect lets it be, and three of them."""


@pytest.fixture
async def told() -> AsyncIterator[asyncio.Queue[str]]:
    """What the webhook's receiver is sent; `told.url` in the environment of the command only."""
    texts: asyncio.Queue[str] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        texts.put_nowait(json.loads(await request.text())["text"])
        return web.Response()

    application = web.Application()
    application.router.add_post("/secret-path", take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    texts.url = f"http://127.0.0.1:{runner.addresses[0][1]}/secret-path"  # type: ignore[attr-defined]
    yield texts
    await runner.cleanup()


def set_alarms(stack: Any, url: str) -> str:
    """By the one command; what it prints."""
    own = {"NIGHTLY_WEBHOOK": url, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": HEARTBEAT_S}
    command = [sys.executable, "-m", "draftmill", "alarms", "--silent-after", SILENT_AFTER]
    command += ["--webhook-env", "NIGHTLY_WEBHOOK"]
    environment = {**os.environ, **stack.server.environment, **own}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def watchers(run: str) -> list[int]:
    """The process beside a run that would tell of its end."""
    commands = {path.parent.name: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [int(pid) for pid, command in commands.items() if b"watched.py" in command and run.encode() in command]


async def test_what_an_operator_is_told(stack, mill, fake_server, told) -> None:
    printed = await asyncio.to_thread(set_alarms, stack, told.url)
    assert printed.splitlines() == [
        "created: draftmill: silent runs",
        "created: draftmill: failed runs",
        "created: draftmill: runs nobody starts",
    ]
    assert "created" not in await asyncio.to_thread(set_alarms, stack, told.url)
    worker = await asyncio.to_thread(stack.worker, environment={"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": HEARTBEAT_S})

    # A recipe that cannot be: told within seconds, the cause first, the webhook's URL nowhere.
    run = stack.start("refresh/refresh", recipe_file="no-such-recipe.yaml")
    first, second, third = (await asyncio.wait_for(told.get(), 60)).splitlines()
    failed = await asyncio.to_thread(stack.wait, run)
    assert first == failed["state"]["message"].splitlines()[0]
    assert second == f"{failed['name']}: RecipeError"
    assert third == f"{stack.server.url}/runs/flow-run/{run}"

    # Paths begin where the worker was started, not where somebody deployed.
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(latency=Latency(first_s=0.5)) as fake:
        mill.url = fake.url
        recipe = mill.data(engine__in_flight=2) | {"dataset": "by-the-worker"}
        (stack.folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        silent = stack.start("refresh/refresh", recipe_file="recipe.yaml")
        await Asked(fake).until(lambda asked: asked.finished >= ROWS // 2)

        # Another one meanwhile, by hand: refused, in words.
        refused = await asyncio.to_thread(stack.wait, stack.start("refresh/refresh", recipe_file="recipe.yaml"))
        assert refused["state"]["name"] == "Cancelled"
        assert refused["state"]["message"] == "Deployment concurrency limit reached."

        # The worker's machine dies: nobody is left who could say so.
        gone = [*stack.children(worker), *watchers(silent)]
        assert len(gone) == 2
        worker.kill()
        for pid in reversed(gone):
            os.kill(pid, signal.SIGKILL)
        crashed = await asyncio.to_thread(stack.wait, silent)
        assert crashed["state"]["name"] == "Crashed"
        text = await asyncio.wait_for(told.get(), 60)
        assert text.startswith("No sign of life for 1.5 minutes")
        assert "Crashed" in text

        # Its place is free, and a retry asks for what is missing.
        worker.start()
        stack.retry(silent)
        done = await asyncio.to_thread(stack.wait, silent, lambda found: found["state"]["type"] == "COMPLETED")
    assert done["run_count"] == 2
    assert (stack.folder / "by-the-worker").is_dir()
    assert told.empty()
    for log in stack.folder.rglob("*.log"):
        assert "secret-path" not in log.read_text()
