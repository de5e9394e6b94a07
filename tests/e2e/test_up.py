"""`draftmill up` as a person uses it: start, look, run, end it in every way, start again."""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from draftmill.serving.prefect_server import PrefectServer
from draftmill.serving.process import free_ports
from draftmill.up.credentials import load_or_create
from draftmill.up.deployments import DATASET
from draftmill.up.home import Home
from draftmill.up.marked import marked
from tests.e2e.asked import A_ROW, IN_FLIGHT, Asked
from tests.e2e.conftest import FINAL

# Three starts and two ends in one of them: 100 s on a quiet machine, and the suite's other files run beside it.
pytestmark = pytest.mark.timeout(600)

WAIT_S = 180
"""Seconds for anything that a test waits for."""

ROWS = 48
"""Of examples/prompts.jsonl."""

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1 and ::1 as /proc/net has them."""


@dataclass
class Up:
    """A home and its ports; the command that runs on them, now or later."""

    root: Path
    engine_port: int
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    process: subprocess.Popen[str] | None = None

    @property
    def home(self) -> Home:
        return Home(self.root)

    @property
    def server(self) -> PrefectServer:
        """Its API; what is started is the command's."""
        return PrefectServer(self.home.prefect, port=self.ports[0], auth=load_or_create(self.home.credentials).auth)

    @property
    def told(self) -> str:
        """What stands on its terminal."""
        return "".join(self._told(name).read_text() for name in ("out", "err"))

    def _told(self, name: str) -> Path:
        return self.root.parent / f"{self.root.name}.{name}"

    def command(self, *options: str) -> list[str]:
        ui, s3 = self.ports
        ports = ["--port", str(ui), "--s3-port", str(s3), "--engine-port", str(self.engine_port)]
        return [sys.executable, "-m", "draftmill", "up", "--home", str(self.root), *ports, *options]

    def begin(self, *options: str) -> None:
        """Starts the command and does not wait."""
        with self._told("out").open("w") as out, self._told("err").open("w") as err:
            # Where the tests run under nohup it would be deaf to SIGHUP, as it has to be.
            hears = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
            command = self.command(*options)
            self.process = subprocess.Popen(command, stdout=out, stderr=err, text=True, preexec_fn=hears)

    def wait_ready(self) -> None:
        assert self.process is not None
        until(lambda: "another shell" in self.told or self.process.poll() is not None)
        assert self.process.poll() is None, self.told

    def start(self, *options: str) -> None:
        self.begin(*options)
        self.wait_ready()

    def end(self, *numbers: signal.Signals) -> int:
        """Its exit status once these signals have ended it."""
        assert self.process is not None
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(0.3)
        return self.process.wait(WAIT_S)

    def refresh(self, **changes: Any) -> str:
        """A run from the form, with some of its numbers changed: `refresh(prompts__limit=8)`."""
        found = self.server.ask("GET", "/deployments/name/refresh/refresh")
        for key, value in changes.items():
            part, _, name = key.partition("__")
            found["parameters"]["recipe"][part][name] = value
        body = {"parameters": found["parameters"], "enforce_parameter_schema": True}
        run: str = self.server.ask("POST", f"/deployments/{found['id']}/create_flow_run", body)["id"]
        return run

    def state(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.ask("GET", f"/flow_runs/{run}")["state"]
        return found

    def retry(self, run: str) -> None:
        state = {"type": "SCHEDULED", "name": "AwaitingRetry"}
        self.server.ask("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": True})

    def finished(self, run: str) -> dict[str, Any]:
        until(lambda: self.state(run)["type"] in FINAL)
        return self.state(run)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def make_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    made: list[Up] = []

    def make(name: str = "home", engine_port: int | None = None) -> Up:
        made.append(Up(tmp_path / name, engine_port or free_ports(1)[0]))
        return made[-1]

    yield make
    for each in (each for each in made if each.process is not None):
        if each.process.poll() is None:
            each.end(signal.SIGINT, signal.SIGINT)
        print(each.told)


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """(address as /proc/net has it, port) of the sockets on which these processes listen."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(os.readlink(descriptor))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in inodes:
                address, _, port = local.partition(":")
                found.add((address, int(port, 16)))
    return found


def status_of(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def pid_of(up: Up, words: bytes) -> int:
    (pid,) = (pid for pid in marked(up.root) if words in Path(f"/proc/{pid}/cmdline").read_bytes())
    return pid


def test_an_evening_with_the_embedded_engine(make_up: Callable[..., Up]) -> None:
    up, other = make_up(), make_up("other")
    up.begin()
    other.begin("--no-engine")
    for each in (up, other):
        each.wait_ready()
    nobody_else_gets_in(up)

    # A second Ctrl-C ends at once, and only its own.
    assert other.end(signal.SIGINT, signal.SIGINT) == 130
    until(lambda: marked(other.root) == [])

    run = up.refresh(prompts__limit=4, sampling__max_new_tokens=16)
    found = up.finished(run)
    assert found["name"] in ("Completed", "PartialSuccess"), found
    until(lambda: found["message"].splitlines()[0] in up.told)
    assert "4 rows read" in in_another_shell(up, f"draftmill verify {DATASET}")
    assert "refresh" in in_another_shell(up, "prefect deployment ls")

    second = subprocess.run(up.command(), capture_output=True, text=True)
    assert second.returncode == 0
    assert "it is up already" in second.stderr
    assert up.server.url in second.stdout

    engine = pid_of(up, b"engine\0--port")
    os.kill(engine, signal.SIGKILL)
    until(lambda: "the engine is up again" in up.told)
    assert pid_of(up, b"engine\0--port") != engine

    secrets_are_nowhere(up)
    assert up.end(signal.SIGTERM) == 0
    assert marked(up.root) == []
    assert "everything has ended" in up.told


def nobody_else_gets_in(up: Up) -> None:
    """Loopback only, and nothing without credentials, from a shell or from another site's page."""
    sockets = listening(marked(up.root))
    assert {*up.ports, up.engine_port} <= {port for _, port in sockets}
    assert {address for address, _ in sockets} <= LOOPBACK
    url, s3 = up.server.url, f"http://127.0.0.1:{up.ports[1]}"
    assert status_of(url) == 200, "the UI's page, which asks for the password"
    assert status_of(f"{url}/api/admin/version") == 401
    assert status_of(f"{url}/api/admin/version", Authorization="Basic ZHJhZnRtaWxsOng=") == 401
    assert status_of(f"{s3}/draftmill/") == 403
    request = urllib.request.Request(f"{url}/api/health", headers={"Origin": "http://elsewhere.example"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] is None
    for path in (up.home.credentials, up.home.env, up.home.s3 / "identities.json"):
        assert path.stat().st_mode & 0o777 == 0o600
    # A socket's or a link's own mode says nothing.
    files = (path for path in up.root.rglob("*") if path.is_file() and not path.is_symlink())
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def secrets_are_nowhere(up: Up) -> None:
    """Not on a command line, not in a log, not on the terminal, not in what Prefect stores."""
    credentials = load_or_create(up.home.credentials)
    seen = [up.told, *(path.read_text(errors="replace") for path in up.home.logs.iterdir())]
    seen += [Path(f"/proc/{pid}/cmdline").read_text() for pid in [up.process.pid, *marked(up.root)]]
    seen += [up.home.deployments.read_text(), up.home.prefect.joinpath("prefect.db").read_text(errors="replace")]
    for secret in (credentials.password, credentials.secret_key):
        assert not [text for text in seen if secret in text]


def in_another_shell(up: Up, line: str) -> str:
    """What a command prints there, by the words that `up` prints."""
    setup = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; set -a; . {up.home.env}; set +a"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_"))}
    done = subprocess.run(["sh", "-c", f"{setup}; {line}"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


async def test_ended_in_the_middle_of_a_run(make_up: Callable[..., Up], fake_server) -> None:
    async with fake_server(latency=A_ROW, slots=8) as fake:
        asked, up = Asked(fake), make_up(engine_port=int(fake.url.rpartition(":")[2]))
        await asyncio.to_thread(up.start, "--no-engine")
        run = await asyncio.to_thread(up.refresh, engine__in_flight=IN_FLIGHT)

        await asked.until(lambda asked: asked.finished >= ROWS // 4)
        interrupted_at = time.time()
        assert await asyncio.to_thread(up.end, signal.SIGINT) == 0
        assert marked(up.root) == []
        assert asked.in_flight == 0
        assert asked.finished < ROWS

        await asyncio.to_thread(up.start, "--no-engine")
        assert (await asyncio.to_thread(up.state, run))["name"] == "Cancelled"
        before = asked.finished
        await asyncio.to_thread(up.retry, run)
        await asked.until(lambda asked: asked.finished >= before + ROWS // 4)
        killed_at = time.time()
        await asyncio.to_thread(up.end, signal.SIGKILL)
        assert asked.finished < ROWS

        await asyncio.to_thread(up.start, "--no-engine")
        assert (await asyncio.to_thread(up.state, run))["name"] == "Crashed"
        assert "had no process any more" in up.told
        await asyncio.to_thread(up.retry, run)
        found = await asyncio.to_thread(up.finished, run)
        assert found["name"] in ("Completed", "PartialSuccess")
        assert asked.finished == ROWS
        asked.only_what_had_to_be(interrupted_at, killed_at)
        assert await asyncio.to_thread(up.end, signal.SIGHUP) == 0


def test_ended_before_it_is_up(make_up: Callable[..., Up]) -> None:
    up = make_up()
    up.begin("--no-engine")
    until(lambda: "waiting for" in up.told)
    assert up.end(signal.SIGTERM) == 0
    assert marked(up.root) == []


def test_a_taken_port_costs_nothing(make_up: Callable[..., Up]) -> None:
    up = make_up()
    with socket.socket() as other:
        other.bind(("127.0.0.1", up.ports[1]))
        other.listen()
        done = subprocess.run(up.command("--no-engine"), capture_output=True, text=True)
    assert done.returncode == 2
    assert f"127.0.0.1:{up.ports[1]}" in done.stderr
    assert "--s3-port" in done.stderr
    assert "Traceback" not in done.stderr
