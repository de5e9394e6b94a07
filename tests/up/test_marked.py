"""Every process of a home is found, also those that nobody is the parent of, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.up.marked import MARK, end_marked, kill_marked, marked

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

SLEEPS = "import time; print(1, flush=True); time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""


def start(home: Path | str, code: str = SLEEPS) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, MARK: str(home)}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_processes_of_another_home_are_let_be(tmp_path: Path) -> None:
    ours, other = start(tmp_path), start(f"{tmp_path}2")
    try:
        assert marked(tmp_path) == [ours.pid]
        assert end_marked(tmp_path) == 1
        assert other.poll() is None
        assert marked(tmp_path) == []
    finally:
        for process in (ours, other):
            process.kill()
            process.communicate()


def test_an_orphan_that_does_not_hear_sigterm_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.up.marked.ENDS_S", 0.3)
    start(tmp_path, PARENT).communicate()
    assert len(marked(tmp_path)) == 1
    assert end_marked(tmp_path) == 1
    assert marked(tmp_path) == []


def test_nothing_to_end(tmp_path: Path) -> None:
    assert end_marked(tmp_path) == 0
    kill_marked(tmp_path)
