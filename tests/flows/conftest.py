"""A real Prefect server for the session, and runs of the flows against the fake SGLang server."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import State
from prefect.settings import PREFECT_API_URL
from prefect.testing.utilities import prefect_test_harness

from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from flows.refresh import refresh
from flows.rerun import rerun
from tests.mill import Mill

DRAFTMILL_RUN = """
import importlib, json, sys
for place, value in json.loads(sys.argv.pop(1)).items():
    module, _, name = place.rpartition(".")
    setattr(importlib.import_module(module), name, value)
from draftmill.cli import main
main()
"""


@pytest.fixture(scope="session", autouse=True)
def prefect_server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield


class FlowMill(Mill):
    """A mill whose flows run in this process."""

    def recipe(self, **changes: Any) -> Recipe:
        return parse_recipe(self.data(**changes), origin="the test")

    def recipe_file(self, **changes: Any) -> str:
        """The recipe as a YAML file, for runs that are processes."""
        path = self.folder / "recipe.yaml"
        path.write_text(yaml.safe_dump(self.recipe(**changes).model_dump(mode="json")))
        return str(path)

    async def refresh(
        self, *, again: Sequence[str] = (), plan_only: bool = False, until: str | None = None, **changes: Any
    ) -> dict[str, Any]:
        """The data of the flow's final state."""
        recipe = self.recipe(**changes)
        state = await refresh(recipe, plan_only=plan_only, again=list(again), until=until, return_state=True)
        return await self._data(state)

    async def _data(self, state: State[Any]) -> dict[str, Any]:
        data: dict[str, Any] = await state.aresult(raise_on_failure=False)
        if isinstance(data, BaseException):
            raise data
        return data | {"state": state.name}

    async def rerun(self, *, generate: bool = False, reasons: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
        wanted = [f"{key}={json.dumps(value)}" for key, value in self.data(**changes).items() if key != "dataset"]
        state = await rerun(self.dataset, changes=wanted, generate=generate, reasons=list(reasons), return_state=True)
        return await self._data(state)


@pytest.fixture
def mill(tmp_path: Path) -> FlowMill:
    return FlowMill(tmp_path)


@pytest.fixture
def s3_mill(tmp_path: Path, bucket: str) -> FlowMill:
    """A mill whose dataset is in a new bucket of the session's S3 server."""
    return FlowMill(tmp_path, place=f"{bucket}/nights/kimi")


async def _start_run(
    recipe_file: str,
    *arguments: str,
    largest_file_bytes: int | None = None,
    constants: dict[str, float] | None = None,
    environment: dict[str, str] | None = None,
) -> asyncio.subprocess.Process:
    def prepare() -> None:
        # A shell's background job ignores SIGINT and hands that on; a person's terminal does not.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if largest_file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, largest_file_bytes))

    with Path(recipe_file).with_suffix(".err").open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", DRAFTMILL_RUN, json.dumps(constants or {}), "run"),
            recipe_file,
            *arguments,
            env={**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()} if environment is None else environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=prepare,
        )


@pytest.fixture
async def start_run() -> AsyncIterator[Callable[..., Awaitable[asyncio.subprocess.Process]]]:
    """`process = await start_run(recipe_file)`: `draftmill run` on the tests' own Prefect server.

    Its stderr goes into a file beside the recipe, `recipe.err`. `largest_file_bytes`: no file may grow beyond, as on a
    full disk; `constants`: other values than the modules', {"draftmill.workspace.PART_EVERY_S": 1.0}; `environment`:
    all of it, in place of this process's own with the tests' Prefect server. What still runs at the test's end is
    killed.
    """
    started: list[asyncio.subprocess.Process] = []

    async def start(recipe_file: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(await _start_run(recipe_file, *arguments, **options))
        return started[-1]

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()
