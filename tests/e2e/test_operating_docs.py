"""docs/operating.md, command by command, in a fresh home: none is left out, what is put in its place is said here."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill.serving.prefect_server import PrefectServer
from draftmill.serving.process import free_ports
from tests.e2e.conftest import FINAL
from tests.mill import Mill

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")

WAIT_S = 240
"""Seconds for a command, and for what it has begun."""

ENDS_S = 30
"""Seconds for what stays to end by itself: a worker of Prefect's at times does not."""

INSTALL = ".venv/bin/pip install -c requirements.lock ."
"""From nothing it takes minutes, and .ci/run does it: here without what it depends on, and only to the last step."""

PIP = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
"""An environment that uv made has no pip."""

STAYS = ("prefect server start", "prefect worker start --pool draftmill --type process")
"""Ends with the page."""

NEW_MACHINE = "Restore"
"""The section whose commands have a home of their own."""


def commands() -> Iterator[tuple[str, str]]:
    """Section and command of every sh block, in the page's order; lines that end with a backslash are one."""
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE):
        for block in re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", "").splitlines():
                yield section.splitlines()[0], line


@dataclass
class Machine:
    """Where the page's commands run: a clone's files, a home, a server on another port than the page's."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    exports: list[str] = field(default_factory=list)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def clone(self) -> Path:
        return self.folder / "clone"

    def environment(self, home: str) -> dict[str, str]:
        own = ("PREFECT_", "AWS_", "DRAFTMILL_", "XDG_", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        (self.folder / home).mkdir(exist_ok=True)
        return kept | {
            "HOME": str(self.folder / home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_UI_API_URL": "/api",
            # A run is to begin a moment after it is due.
            "PREFECT_WORKER_QUERY_SECONDS": "2",
        }

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return PrefectServer(self.folder, port=self.port).ask(method, path, body)

    def runs(self) -> list[dict[str, Any]]:
        """Newest first, without those that a schedule has for later."""
        found = self.ask("POST", "/flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC"})
        return [run for run in found if not (run["auto_scheduled"] and run["state"]["type"] == "SCHEDULED")]

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.5)

    def command(self, line: str) -> str:
        """As it is typed here: the page's names are those of this machine."""
        line = line.replace(INSTALL, f"{PIP} --dry-run --no-deps {ROOT}")
        line = line.replace("127.0.0.1:4200", f"127.0.0.1:{self.port}")
        if "SCHEDULE_ID" in line:
            found = self.ask("GET", "/deployments/name/refresh/my-dataset")
            line = line.replace("SCHEDULE_ID", found["schedules"][0]["id"])
        if "cancel RUN_ID" in line:
            # One that could still run.
            found = self.ask("GET", "/deployments/name/refresh/my-dataset")
            later = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2099-01-01T00:00:00Z"}}
            run = self.ask("POST", f"/deployments/{found['id']}/create_flow_run", {"state": later})
            line = line.replace("RUN_ID", run["id"])
        return line.replace("RUN_ID", self.runs()[0]["id"]) if "RUN_ID" in line else line

    def type(self, line: str, *, home: str) -> None:
        """Runs one line to its end, and what it has begun, too."""
        script = "\n".join([*self.exports, self.command(line)])
        if line.startswith("export "):
            self.exports.append(line)
        with (self.folder / "output.log").open("ab") as log:
            options: dict[str, Any] = {"cwd": self.clone, "env": self.environment(home), "stdout": log, "stderr": log}
            if line in STAYS:
                self.children.append(subprocess.Popen(["bash", "-c", script], start_new_session=True, **options))
                self.wait(self.server_answers if "server" in line else self.worker_is_online)
                return
            done = subprocess.run(["bash", "-c", script], timeout=WAIT_S, **options)
        assert done.returncode == 0, f"{line}\n{(self.folder / 'output.log').read_text()[-3000:]}"
        if line.startswith("prefect flow-run retry"):
            self.wait(lambda: self.runs()[0]["run_count"] > 1)
        if len(self.children) == len(STAYS):
            self.wait(lambda: all(run["state"]["type"] in FINAL for run in self.runs()))

    def server_answers(self) -> bool:
        try:
            return bool(self.ask("GET", "/health"))
        except OSError:
            return False

    def worker_is_online(self) -> bool:
        found = self.ask("POST", "/work_pools/filter", {})
        return any(pool["name"] == "draftmill" and pool["status"] == "READY" for pool in found)

    def end(self) -> None:
        for child in reversed(self.children):
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(ENDS_S)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    machine.clone.mkdir()
    (machine.clone / "deployments").symlink_to(ROOT / "deployments")
    (night,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    (machine.clone / "nights.yaml").write_text(night)
    yield machine
    machine.end()


@pytest.mark.timeout(900)
async def test_every_command_of_the_page_does_what_it_says(machine, fake_server) -> None:
    mill = Mill(machine.clone)
    mill.prompts([f"prompt {n}" for n in range(8)])
    async with fake_server() as fake:
        mill.url = fake.url
        recipe = mill.data() | {"dataset": "my-dataset"}
        (machine.clone / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        for section, line in commands():
            home = "new-home" if section == NEW_MACHINE else "home"
            await asyncio.to_thread(machine.type, line, home=home)
        runs = await asyncio.to_thread(machine.runs)
    ends = {run["state"]["name"] for run in runs}
    assert ends == {"Completed", "Planned", "Cancelled"}
    assert len(fake.log) == 8 + 1, "each prompt once, and the canary of the one run that asked"
    assert (machine.folder / "new-home" / ".prefect" / "prefect.db").stat().st_size > 0
