"""The Dockerfile's steps in a plain virtual environment: what they install deploys, takes runs, and says it is alive.

Left to a container engine: the base image, apt-get, useradd, the init.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, Seeded
from draftmill.serving.prefect_server import PrefectServer
from draftmill.serving.process import Child, free_ports
from draftmill.serving.protocol import Limits
from draftmill.serving.shaped import QWEN3_MARKERS
from tests.e2e.conftest import ROOT, Stack
from tests.infra.dockerfile import environment, named, steps
from tests.mill import MODEL

SPEAKS = Markers(end_id=QWEN3_MARKERS["<|im_end|>"])
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
"""A model of its own tokenizer: the image has no embedded engine."""

pytestmark = pytest.mark.timeout(900)
"""The installation is some minutes on a busy machine."""

ABSOLUTE = re.compile(r"(?<![\w.])/(build|opt|srv|var|root)\b")


class Image:
    """The file system that the steps make, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def inside(self, text: str) -> str:
        """The same words with the image's absolute paths below `root`."""
        return ABSOLUTE.sub(lambda found: f"{self.root}{found[0]}", text)

    def build(self) -> None:
        folder = self.root
        for step in steps():
            if step.name == "WORKDIR":
                folder = Path(self.inside(step.text))
                folder.mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY" and "from" not in step.flags:
                self._copy(step.words[:-1], folder / self.inside(step.words[-1]))
            elif step.name == "RUN" and step.stage == 0:
                path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
                command = ["sh", "-euc", self.inside(step.text)]
                # A minute of compiling is no part of what is tried.
                subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path, "PIP_NO_COMPILE": "1"}, check=True)

    def _copy(self, sources: list[str], target: Path) -> None:
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target)

    @property
    def folder(self) -> Path:
        return Path(self.inside(named("WORKDIR")[-1].text))

    @property
    def environment(self) -> dict[str, str]:
        """Its ENV, and nothing of ours that Python or Prefect would look at."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DRAFTMILL_"))}
        own = {name: self.inside(value).replace("$PATH", ours["PATH"]) for name, value in environment().items()}
        return {**ours, **own}

    def run(self, *command: str, **variables: str) -> str:
        """What a command in the image prints; it must succeed."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment | variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    image = Image(tmp_path_factory.mktemp("image"))
    image.build()
    return image


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A server with nothing deployed on it yet."""
    folder = tmp_path_factory.mktemp("stack")
    with PrefectServer(folder / "prefect") as server:
        yield Stack(server, folder, bound=None)  # type: ignore[arg-type]


def test_what_it_has_is_all_it_needs_and_comes_from_itself(image: Image) -> None:
    for program in (["prefect", "worker", "--help"], ["draftmill", "--help"]):
        assert "Usage" in image.run(*program)
    modules = "draftmill.cli, flows.refresh, flows.rerun, flows.launch, tasks.seal"
    files = image.run(
        "python", "-c", f"import {modules}, sys; print(*(sys.modules[m].__file__ for m in {modules.split(', ')}))"
    )
    assert all(path.startswith(str(image.root)) for path in files.split())
    assert "torch" not in image.run("pip", "list")


async def test_its_worker_takes_a_run(image: Image, stack: Stack, mill, shaped_folder) -> None:
    (port,) = free_ports(1)
    own = {**stack.server.environment, "PREFECT_WORKER_WEBSERVER_PORT": str(port), "PREFECT_WORKER_QUERY_SECONDS": "2"}
    own["PREFECT_HOME"] = str(image.root / "prefect")
    worker = Child(
        "the image's worker",
        [str(image.root / "opt/draftmill/bin" / named("CMD")[0].words[0]), *named("CMD")[0].words[1:]],
        environment=image.environment | own,
        log=stack.folder / "worker.log",
        answers=lambda: healthy(image, port),
        ready_s=120,
        ends_s=30,
        folder=image.folder,
    )
    await asyncio.to_thread(worker.start)
    try:
        for line in deploy_lines():
            await asyncio.to_thread(image.run, *line.split(), **own)
        mill.prompts([f"prompt {n}" for n in range(6)])
        async with serving() as fake:
            mill.url = fake.url
            recipe = mill.data(model__tokenizer=shaped_folder("qwen3", TEMPLATE), structure="plain")
            run = stack.start("refresh/refresh", recipe=recipe)
            found = await asyncio.to_thread(stack.wait, run)
        assert (found["state"]["name"], len(mill.rows())) == ("Completed", 6)
        assert list((image.root / "var/lib/draftmill/state").iterdir())
    finally:
        worker.stop()


def deploy_lines() -> list[str]:
    """What the compose file's `deploy` does."""
    compose = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8"))
    return [line.replace("${ALARMS:-}", "") for line in compose["services"]["deploy"]["command"][2].splitlines()]


def healthy(image: Image, port: int) -> bool:
    """The compose file's question, at this worker's port."""
    compose = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8"))
    _, *command = compose["services"]["worker"]["healthcheck"]["test"]
    command[-1] = command[-1].replace(":8080/", f":{port}/")
    return subprocess.run(command, env=image.environment, capture_output=True).returncode == 0


def serving() -> FakeServer:
    answers = Seeded(seed=7, markers=SPEAKS, ordinary=range(1000, 40000), lengths=(4, 12))
    return FakeServer(answers, card=Card(MODEL, "0.5.23", slots=1), limits=Limits(4096, 151936), markers=SPEAKS)
