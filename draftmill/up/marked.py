"""The processes of one home, found by a variable that all of them inherit.

A worker that dies leaves its runs, and a killed `up` may leave anything for some
seconds: process groups and parents do not tell whose they are, since Prefect starts
runs in sessions of their own. The mark does. Reads /proc; where there is none
(macOS), nothing is found, and children end with their parent all the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "DRAFTMILL_UP"
"""The home's path, in the environment of every process of it."""

ENDS_S = 5.0
"""Seconds from SIGTERM to SIGKILL."""

LOOK_EVERY_S = 0.1
"""Seconds between two looks whether they are gone."""


def mark(home: Path) -> None:
    """Children that this process starts from now on belong to the home."""
    os.environ[MARK] = str(home)


def marked(home: Path) -> list[int]:
    """The pids that belong to the home, this process excepted."""
    entry = f"{MARK}={home}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is not ours
            if entry in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return sorted(found)


def end_marked(home: Path) -> int:
    """Ends them, by SIGKILL those that do not hear SIGTERM; how many there were."""
    number = len(marked(home))
    _signal(home, signal.SIGTERM)
    deadline = time.monotonic() + ENDS_S
    while marked(home):
        if time.monotonic() > deadline:
            kill_marked(home)
        time.sleep(LOOK_EVERY_S)
    return number


def kill_marked(home: Path) -> None:
    """Ends them at once."""
    _signal(home, signal.SIGKILL)


def _signal(home: Path, number: signal.Signals) -> None:
    for pid in marked(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
