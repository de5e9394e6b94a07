"""A real Prefect server for the session, and runs of the flows against the fake SGLang server."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import State
from prefect.settings import PREFECT_API_URL
from prefect.testing.utilities import prefect_test_harness

from draftmill.dataset.manifest import Manifest, newest
from draftmill.dataset.storage import open_storage
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Answers, Markers, Seeded
from draftmill.serving.protocol import Limits
from flows.refresh import refresh
from flows.rerun import rerun

MODEL = "SmolLM2-135M-Instruct"
END_ID = 2
MARKERS = Markers(end_id=END_ID)
SEEDED = Seeded(seed=7, markers=MARKERS, ordinary=range(1000, 40000), lengths=(4, 12))

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


@dataclass
class Mill:
    """A dataset, a prompt file, and the recipe that joins them. `place`: the dataset's URL, else in the folder."""

    folder: Path
    url: str = "http://127.0.0.1:9"
    changes: dict[str, Any] = field(default_factory=dict)
    place: str | None = None

    @property
    def dataset(self) -> str:
        return self.place or str(self.folder / "dataset")

    def prompts(self, texts: Sequence[str]) -> None:
        lines = [json.dumps({"id": text, "messages": [{"role": "user", "content": text}]}) for text in texts]
        (self.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def recipe(self, **changes: Any) -> Recipe:
        data: dict[str, Any] = {
            "dataset": self.dataset,
            "prompts": {"path": str(self.folder / "prompts.jsonl"), "min_room": 8},
            "model": {"name": MODEL, "tokenizer": "embedded", "context_length": 2048},
            "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 32},
            "engine": {"urls": [self.url], "in_flight": 8, "retries": 1, "wait_s": 0},
            "chunk_rows": 4,
            "breaker": "off",
        }
        for key, value in (self.changes | changes).items():
            part, _, name = key.rpartition("__")
            (data.setdefault(part, {}) if part else data)[name] = value
        return parse_recipe(data, origin="the test")

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
        state = await rerun(self.recipe(**changes), generate=generate, reasons=list(reasons), return_state=True)
        return await self._data(state)

    @property
    def manifest(self) -> Manifest | None:
        return newest(open_storage(self.dataset))

    def rows(self, kind: str = "shards") -> list[dict[str, Any]]:
        """The manifest's rows, never what merely lies in the folder."""
        storage, manifest = open_storage(self.dataset), self.manifest
        refs = getattr(manifest, kind) if manifest else []
        return [row for ref in refs for row in storage.read_table(ref.path).to_pylist()]


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path)


@pytest.fixture
def s3_mill(tmp_path: Path, bucket: str) -> Mill:
    """A mill whose dataset is in a new bucket of the session's S3 server."""
    return Mill(tmp_path, place=f"{bucket}/nights/kimi")


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


@pytest.fixture
def fake_server() -> Callable[..., FakeServer]:
    """`async with fake_server(rule=...) as fake`: speaks for SmolLM2, seeded answers of 4 to 12 ids."""

    def make(answers: Answers = SEEDED, *, slots: int = 1, **options: Any) -> FakeServer:
        card = Card(MODEL, "0.5.23", slots=slots)
        return FakeServer(answers, card=card, limits=Limits(2048, 49152), markers=MARKERS, **options)

    return make
