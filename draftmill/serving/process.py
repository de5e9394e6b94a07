"""Servers as processes: ours end on SIGTERM and Ctrl-C quickly, with status 0 and nothing on stderr; those that we
start (`Child`) end with us."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from draftmill.errors import DraftmillError

STUBBORN_S = 30
"""Seconds that an orphan has to end on SIGTERM: a server whose database is gone waits for it for ever."""

LOOK_EVERY_S = 0.2
"""Seconds between two looks whether a server answers."""


class Child:
    """A server that this process starts, may kill, and may start again on the same data and ports.

    `command`; `environment`: all of its variables; `log`: the file its output is added to; `answers`: whether it is
    ready, asked until it is, for at most `ready_s` seconds; `ends_s`: seconds it has to end by itself on SIGTERM;
    `stop`: once it is set, nobody waits for an answer any more.
    It has a session of its own (Ctrl-C is for whoever started it), and ends with this process, however that ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        answers: Callable[[], bool],
        ready_s: float,
        ends_s: float,
        folder: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command, self._environment, self._folder = list(command), dict(environment), folder
        self._answers, self._ready_s, self._ends_s = answers, ready_s, ends_s
        self._stop = stop or threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._bound = ExitStack()

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Starts it and waits until it answers. Raises DraftmillError when it does not come up."""
        self._bound.close()  # of one that died: its number may be another process's by now
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._bound.enter_context(ends_with_us(self._process.pid))
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ends it in order: SIGTERM, and SIGKILL when that was not enough. Nothing where it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._bound.close()
        self._process.send_signal(number)
        try:
            self._process.wait(self._ends_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._ready_s
        while not self._answers() and not self._stop.is_set():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DraftmillError(
                    f"{self.name} does not come up",
                    value=f"exit status {self._process.poll()}",
                    expected=f"an answer within {self._ready_s:.0f} s",
                    remedy=f"see {self.log}",
                )
            time.sleep(LOOK_EVERY_S)


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def private_file(path: Path, text: str) -> None:
    """Writes a file that only its owner may read, mode 600 from its first byte on."""
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)  # one that was there keeps its mode
        file.write(text)


def run_until_signalled(serving: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine that serves until cancelled, and cancels it on SIGTERM or SIGINT.

    Call it from the main thread. Errors of the coroutine itself pass through.
    """
    asyncio.run(_until_signalled(serving))


async def _until_signalled(serving: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(serving)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@contextlib.contextmanager
def ends_with_us(pid: int) -> Iterator[None]:
    """Ends `pid` when this process is gone, SIGKILL included: clean-up of one's own needs a living process."""
    code = "import os, sys, time; sys.stdin.read(); os.kill({0}, 15); time.sleep({1}); os.kill({0}, 9)"
    watcher = subprocess.Popen(
        [sys.executable, "-c", code.format(pid, STUBBORN_S)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()
