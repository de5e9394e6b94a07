"""What flush acknowledged is there after a kill; what cannot be written is said."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from draftmill.dataset import journal_rows
from draftmill.dataset.journal import Journal, Key, journal_path, state_folder
from draftmill.dataset.lock import ProcessLock
from draftmill.errors import DatasetError
from draftmill.records import Completion

Make = Callable[..., Completion]


def key(completion: Completion) -> Key:
    return completion.row.row_key, completion.row.attempt


async def test_rows_come_back_as_they_went_in(tmp_path: Path, completion: Make) -> None:
    given = completion("ä", attempt=3, echo_ids=np.array([7, -1], np.int32), matched="</s>", weight_version="v2")
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.put(given)
        await journal.flush()
    with Journal(tmp_path / "journal.sqlite") as journal:
        found = journal.find([key(given), ("unknown", 0)])
    assert list(found) == [key(given)]
    got = found[key(given)]
    for part in ("row", "answer"):
        for name in getattr(given, part).__slots__:
            want, have = getattr(getattr(given, part), name), getattr(getattr(got, part), name)
            if isinstance(want, np.ndarray):
                assert have.dtype == np.int32
                assert have.tolist() == want.tolist()
            else:
                assert have == want, name


async def test_the_first_completion_wins(tmp_path: Path, completion: Make) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.put(completion("a", engine="first"))
        await journal.flush()
        journal.put(completion("a", engine="second"))
        journal.put(completion("a", attempt=1, engine="third"))
        await journal.flush()
        assert journal.duplicates == 1
        assert [c.answer.engine for c in journal.pending()] == ["first", "third"]


async def test_pending_marked_forgotten(tmp_path: Path, completion: Make) -> None:
    a, b, c = (completion(name) for name in "cab")
    with Journal(tmp_path / "j.sqlite") as journal:
        for item in (a, b, c):
            journal.put(item)
        # Commands see what was put before them, committed or not.
        assert [key(item) for item in journal.pending()] == [key(a), key(b), key(c)]
        journal.mark_uploaded([key(b)])
        assert [key(item) for item in journal.pending()] == [key(a), key(c)]
        assert key(b) in journal.find([key(b)])
        journal.forget([key(b), key(a)])
        assert journal.find([key(a), key(b), key(c)]).keys() == {key(c)}


async def test_put_is_committed_without_a_flush(
    tmp_path: Path, completion: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmill.dataset.journal.COMMIT_EVERY_S", 0.02)
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.put(completion("a"))
        reader = journal_rows.connect(tmp_path / "j.sqlite")
        for _ in range(500):
            if journal_rows.pending(reader):
                break
            await asyncio.sleep(0.02)
        assert len(journal_rows.pending(reader)) == 1
        reader.close()


def _fill_the_disk(journal: Journal, completion: Make) -> None:
    # SQLite's own "database or disk is full", as a full disk gives it.
    journal._call(lambda connection: connection.execute("PRAGMA max_page_count = 8").fetchall())
    journal.put(completion("big", output_ids=np.zeros(100_000, np.int32)))


async def test_a_full_disk_surfaces_at_every_later_call(tmp_path: Path, completion: Make) -> None:
    with contextlib.suppress(DatasetError), Journal(tmp_path / "j.sqlite") as journal:
        _fill_the_disk(journal, completion)
        with pytest.raises(DatasetError, match="full"):
            await journal.flush()
        with pytest.raises(DatasetError, match="full"):
            journal.put(completion("next"))
        with pytest.raises(DatasetError, match="full"):
            await journal.flush()
        with pytest.raises(DatasetError, match="full"):
            journal.pending()


async def test_a_failed_write_without_a_flush_surfaces_at_the_end(tmp_path: Path, completion: Make) -> None:
    journal = Journal(tmp_path / "j.sqlite").__enter__()
    _fill_the_disk(journal, completion)
    with pytest.raises(DatasetError, match="full"):
        journal.__exit__(None, None, None)


async def test_a_row_that_cannot_be_stored_does_not_hang_the_run(tmp_path: Path, completion: Make) -> None:
    with contextlib.suppress(DatasetError), Journal(tmp_path / "j.sqlite") as journal:
        journal.put(completion("a", created_at=None))
        with pytest.raises(DatasetError, match="TypeError"):
            await asyncio.wait_for(journal.flush(), 30)


def test_no_sqlite_file(tmp_path: Path) -> None:
    (tmp_path / "j.sqlite").write_bytes(b"this is not a database, but long enough to be looked at" * 20)
    with pytest.raises(DatasetError, match=r"j\.sqlite"), Journal(tmp_path / "j.sqlite"):
        pass
    (tmp_path / "j.sqlite").unlink()
    with Journal(tmp_path / "j.sqlite") as journal:  # the lock was given back
        assert journal.pending() == []


def test_another_format_is_refused(tmp_path: Path) -> None:
    connection = journal_rows.connect(tmp_path / "j.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DatasetError, match="another version"), Journal(tmp_path / "j.sqlite"):
        pass


WRITER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from conftest import build_completion
from draftmill.dataset.journal import Journal

async def main():
    with Journal(Path(sys.argv[1])) as journal:
        number = 0
        while True:
            for _ in range(20):
                journal.put(build_completion(str(number)))
                number += 1
            await journal.flush()
            print(number, flush=True)

asyncio.run(main())
"""


def _writer(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, completion: Make) -> None:
    path = tmp_path / "j.sqlite"
    acknowledged = 0
    for _ in range(2):
        with _writer(path) as process:
            assert process.stdout is not None
            for _ in range(15):
                acknowledged = max(acknowledged, int(process.stdout.readline()))
            with pytest.raises(DatasetError, match=f"process {process.pid} holds"), Journal(path):
                pass
            os.kill(process.pid, signal.SIGKILL)
            acknowledged = max(acknowledged, *(int(line) for line in process.stdout.read().splitlines()), 0)
    with Journal(path) as journal:  # the kernel gave the lock back
        found = journal.find([key(completion(str(number))) for number in range(acknowledged)])
        assert len(found) == acknowledged >= 300


def test_one_run_of_a_dataset_on_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "j.sqlite"
    with Journal(path), pytest.raises(DatasetError, match="another run of this dataset") as caught, Journal(path):
        pass
    assert str(os.getpid()) in str(caught.value)
    with Journal(path):
        pass


FORKER = """
import os, sys, time
from pathlib import Path
from draftmill.dataset.lock import ProcessLock

lock = ProcessLock(Path(sys.argv[1]))
lock.acquire()
child = os.fork()
if child == 0:  # as a pool's worker, which outlives its parent until its pipe closes
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(600)
"""


def test_a_forked_child_does_not_keep_a_killed_parents_lock(tmp_path: Path) -> None:
    path = tmp_path / "j.lock"
    command = [sys.executable, "-c", FORKER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lock = ProcessLock(path)
        with pytest.raises(DatasetError):
            lock.acquire()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
        lock.acquire()
        lock.release()
        process.stdin.close()


def test_path_is_one_per_dataset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTMILL_STATE", str(tmp_path))
    one = journal_path("s3://bucket/one")
    assert one == journal_path("s3://bucket/one/")
    assert one != journal_path("s3://bucket/two")
    assert one.parent.parent == tmp_path
    assert (one.name, len(one.parent.name)) == ("journal.sqlite", 16)
    monkeypatch.delenv("DRAFTMILL_STATE")
    assert tmp_path not in journal_path("s3://bucket/one").parents


def test_the_state_folder_is_absolute_and_home_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for spelling in ("~/mill", "mill", "./other/../mill", str(tmp_path / "mill")):
        monkeypatch.setenv("DRAFTMILL_STATE", spelling)
        assert state_folder() == tmp_path / "mill", spelling
        assert journal_path("s3://bucket/one").parent.parent == tmp_path / "mill"
    for unset in ("", None):
        monkeypatch.setenv("DRAFTMILL_STATE", unset) if unset is not None else monkeypatch.delenv("DRAFTMILL_STATE")
        assert state_folder().is_absolute()
        assert state_folder().name == "draftmill"


def test_spellings_of_one_folder_share_a_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAFTMILL_STATE", str(tmp_path / "state"))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    one = journal_path(str(tmp_path / "real" / "dataset"))  # it need not be there yet
    assert one == journal_path(str(tmp_path / "link" / "dataset"))
    assert one == journal_path(f"file://{tmp_path}/link/dataset/")
    assert one != journal_path(str(tmp_path / "real" / "other"))


def test_duplicates_are_counted_until_the_end_and_stay_readable(tmp_path: Path, completion: Make) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        for _ in range(3):
            journal.put(completion("a"))
    assert journal.duplicates == 2
