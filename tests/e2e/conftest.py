"""What a team has: a real Prefect server, a worker, the project's deployments, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill.serving.prefect_server import PrefectServer, PrefectWorker
from tests.mill import Mill

ROOT = Path(__file__).parents[2]

FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

RUN_S = 240
"""Seconds for a run to come to the state a test waits for."""


@dataclass
class Stack:
    """A Prefect server with deployments/prefect.yaml on it, and workers in `folder`."""

    server: PrefectServer
    folder: Path
    bound: ExitStack

    @property
    def state(self) -> Path:
        """DRAFTMILL_STATE of its workers: their machine's journals and receipts."""
        return self.folder / "state"

    def worker(self, name: str = "worker", **options: Any) -> PrefectWorker:
        """A started worker; it ends with the stack."""
        environment = {"DRAFTMILL_STATE": str(self.state), **options.pop("environment", {})}
        return self.bound.enter_context(
            PrefectWorker(self.server, self.folder, name=name, environment=environment, **options)
        )

    def start(self, deployment: str, **parameters: Any) -> str:
        """A run of "flow/deployment", as the UI's form makes it; its id. Raises DraftmillError when it is refused."""
        found = self.server.ask("GET", f"/deployments/name/{deployment}")
        body = {"parameters": parameters, "enforce_parameter_schema": True}
        run: str = self.server.ask("POST", f"/deployments/{found['id']}/create_flow_run", body)["id"]
        return run

    def run(self, run: str) -> dict[str, Any]:
        """The run as the API has it."""
        found: dict[str, Any] = self.server.ask("GET", f"/flow_runs/{run}")
        return found

    def wait(self, run: str, until: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
        """The run once `until` holds of it; by default once it has come to an end."""
        until = until or (lambda found: found["state"]["type"] in FINAL)
        deadline = time.monotonic() + RUN_S
        while not until(found := self.run(run)):
            assert time.monotonic() < deadline, f"{found['name']}: {found['state']['name']}"
            time.sleep(0.2)
        return found

    def retry(self, run: str) -> None:
        """As the UI's Retry button does it, which it shows for every run of a deployment that has come to an end."""
        state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "Retry from the UI"}
        self.server.ask("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": False})

    def cancel(self, run: str) -> None:
        """As the UI's Cancel button does it."""
        state = {"type": "CANCELLING", "name": "Cancelling"}
        self.server.ask("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": True})

    def task_runs(self, run: str) -> dict[str, str]:
        """The last state's name of each task run of a flow run, by its name."""
        runs = self.server.ask("POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}, "limit": 200})
        runs.sort(key=lambda task: task["created"])
        return {task["name"]: task["state"]["name"] for task in runs}

    def children(self, worker: PrefectWorker) -> list[int]:
        """The processes that a worker has started: each of its runs is one, and what it does after a crash."""
        return [int(pid) for pid in Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for the tests of a file; it has no worker yet: `stack.worker()`. The file's SERVER_SETTINGS are its own."""
    folder = tmp_path_factory.mktemp("stack")
    settings = getattr(request.module, "SERVER_SETTINGS", None)
    with ExitStack() as bound:
        server = bound.enter_context(PrefectServer(folder / "prefect", settings=settings))
        deploy(server)
        yield Stack(server, folder, bound)


def deploy(server: PrefectServer) -> None:
    """The project's deployments, by the one command of the docs."""
    create = [sys.executable, "-m", "prefect", "work-pool", "create", "draftmill", "--type", "process"]
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    command += ["--prefect-file", "deployments/prefect.yaml"]
    for each in (create, command):
        subprocess.run(each, cwd=ROOT, env=_environment(server), check=True, capture_output=True)


def _environment(server: PrefectServer) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**own, **server.environment}


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path)
