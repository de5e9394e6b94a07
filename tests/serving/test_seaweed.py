"""SeaweedFS as a child: an S3 server that asks for its key and keeps what it was given through a kill."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from draftmill.serving.seaweed import SeaweedFS

STARTS = """
import sys, time
from pathlib import Path
from draftmill.serving.seaweed import SeaweedFS
with SeaweedFS(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


def test_it_keeps_its_objects_through_a_kill(tmp_path: Path, s3_environment: Callable[[dict[str, str]], None]) -> None:
    with SeaweedFS(tmp_path / "s3") as server:
        s3_environment(server.environment)
        server.make_bucket("kept")
        s3 = fsspec.filesystem("s3", use_listings_cache=False)
        s3.pipe_file("kept/a", b"1")
        server.kill()
        server.start()
        assert s3.cat_file("kept/a") == b"1"


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    started = subprocess.Popen([sys.executable, "-c", STARTS, str(tmp_path / "s3")], stdout=subprocess.PIPE)
    assert started.stdout is not None
    pid = int(started.stdout.readline())
    started.kill()
    started.communicate()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/cmdline").exists() and b"weed" in Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_wrong_key_is_refused(seaweed: SeaweedFS, s3_environment: Callable[[dict[str, str]], None]) -> None:
    s3_environment({**seaweed.environment, "AWS_SECRET_ACCESS_KEY": "wrong"})
    with pytest.raises(PermissionError):
        fsspec.filesystem("s3", use_listings_cache=False).ls("any")


def test_its_key_is_the_users_own(seaweed: SeaweedFS) -> None:
    mode = (seaweed.folder / "identities.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
