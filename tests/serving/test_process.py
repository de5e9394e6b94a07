"""Children: they come up or say why not, and none outlives the process that started it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from draftmill.errors import DraftmillError
from draftmill.serving.process import Child, private_file

STARTS = """
import sys, time
from pathlib import Path
from draftmill.serving import process
process.STUBBORN_S = 0.5
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('deaf', 'w'); time.sleep(600)"
child = process.Child(
    "a deaf one", [sys.executable, "-c", deaf], environment={}, log=Path("log"), folder=Path.cwd(),
    answers=Path("deaf").exists, ready_s=60, ends_s=1,
)
child.start()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_that_hears_no_signal_ends_with_a_killed_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, cwd=tmp_path)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 60
    # A container's first process may not collect the dead: then it stays as a zombie without a command.
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def child(folder: Path, code: str, **options: object) -> Child:
    settings = {"environment": dict(os.environ), "answers": lambda: False, "ready_s": 60.0, "ends_s": 5.0}
    return Child("the server", [sys.executable, "-c", code], log=folder / "log", **{**settings, **options})  # type: ignore[arg-type]


def test_a_child_that_dies_at_once_is_said_with_its_log(tmp_path: Path) -> None:
    dying = child(tmp_path, "import sys; print('no room', flush=True); sys.exit(7)")
    with pytest.raises(DraftmillError, match="the server does not come up") as error:
        dying.start()
    assert "exit status 7" in str(error.value)
    assert str(tmp_path / "log") in str(error.value)
    assert (tmp_path / "log").read_text() == "no room\n"
    assert dying.pid is None


def test_a_child_that_never_answers_is_ended(tmp_path: Path) -> None:
    silent = child(tmp_path, "import time; time.sleep(600)", ready_s=0.3)
    with pytest.raises(DraftmillError, match="does not come up"):
        silent.start()
    assert silent.pid is None


def test_a_child_may_be_started_again(tmp_path: Path) -> None:
    again = child(tmp_path, "import time; time.sleep(600)", answers=lambda: True)
    again.start()
    first = again.pid
    again.kill()
    again.start()
    assert first is not None
    assert again.pid not in (None, first)
    again.stop()
    assert again.pid is None


def test_a_private_file_is_its_owners_alone_also_when_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old and long")
    path.chmod(0o644)
    private_file(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
