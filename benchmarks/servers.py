"""The two servers of a run: the fake that answers, and the Prefect server that a user would have running."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from benchmarks.process import cpu_s, pids_of_session
from draftmill.serving.prefect_server import SETTINGS

START_TIMEOUT_S = 120
"""Seconds for Prefect's first start: it makes its database."""

IDLE_SHARE = 0.05
"""Of one core: a Prefect server that has written down the run before uses less."""

IDLE_TIMEOUT_S = 60


@contextlib.contextmanager
def fake_server(flags: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """A fresh fake server in a process of its own: `(url, process id)`."""
    command = [sys.executable, "-m", "draftmill.serving.fake", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


class PrefectServer:
    """A running Prefect server. `env` is what a command needs to find it."""

    def __init__(self, folder: Path, port: int, pids: list[int]) -> None:
        self.pids = pids
        self.env = prefect_env(folder) | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}

    def wait_until_idle(self) -> None:
        """Lets it finish what the run before left it, so that it does not take the next contestant's time."""
        end_s = time.monotonic() + IDLE_TIMEOUT_S
        while time.monotonic() < end_s:
            before_s = sum(map(cpu_s, self.pids))
            time.sleep(1)
            if sum(map(cpu_s, self.pids)) - before_s < IDLE_SHARE:
                return


def prefect_env(folder: Path) -> dict[str, str]:
    """The environment of all commands: Prefect's files in `folder`, draftmill's defaults for its server."""
    return {**os.environ, **SETTINGS, "PREFECT_HOME": str(folder)}


@contextlib.contextmanager
def prefect_server(folder: Path) -> Iterator[PrefectServer]:
    """One Prefect server for all runs, with its files in `folder`."""
    port = _free_port()
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=prefect_env(folder), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/api/health")
            yield PrefectServer(folder, port, pids_of_session(process.pid))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(url: str) -> None:
    end_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310  a loopback URL of our own
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end_s:
                raise
            time.sleep(0.5)
