"""The journal: completions that have not reached the dataset yet, safe on this machine.

SQLite, one file per dataset and machine (a partition of a fan-out has its own), WAL, synchronous FULL. One thread owns
the connection and takes commands from a queue in order, so that `put` never
waits and everything asked after a put sees it. What `flush` acknowledged
survives SIGKILL and power loss; the rest is at most `COMMIT_EVERY_S` old.

Refuses: a second process on the same file (a lock that the kernel releases when
its holder dies). A write that fails (disk full) is raised by the flush waiting
for it and by every later call; it is never swallowed.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import platformdirs

from draftmill.dataset import journal_rows
from draftmill.dataset.lock import ProcessLock
from draftmill.dataset.storage import normal_url
from draftmill.errors import DatasetError
from draftmill.identity import sha256
from draftmill.records import Completion

COMMIT_EVERY_S = 1.0
"""The longest a completion waits for its commit: what a SIGKILL may cost is asked again in as long."""

MAIN = "journal"
"""The journal of a run that seals; its lock keeps a second one out."""

Key = tuple[str, int]
"""(row_key, attempt): the identity of a request."""

T = TypeVar("T")


def state_folder() -> Path:
    """What draftmill keeps on this machine, an absolute path: the user's state folder, or DRAFTMILL_STATE."""
    base = os.environ.get("DRAFTMILL_STATE") or platformdirs.user_state_path("draftmill")
    # Absolute: a relative one would resolve against each process's own folder.
    return Path(os.path.abspath(os.path.expanduser(base)))


def journal_path(dataset_url: str, name: str = MAIN) -> Path:
    """Where this machine keeps a dataset's journal. Raises RecipeError for a URL that is no dataset's.

    `name`: another one than a run's own, for a partition of a fan-out.
    """
    url = normal_url(dataset_url)
    # Links resolved: two spellings of one folder share one journal, and its lock.
    place = url if url.startswith("s3://") else os.path.realpath(url)
    return state_folder() / sha256(place)[:16] / f"{name}.sqlite"


def journals(dataset_url: str) -> list[Path]:
    """The dataset's journals that there are on this machine, in use or left behind."""
    return sorted(journal_path(dataset_url).parent.glob("*.sqlite"))


class Journal:
    """A context manager. `put` and `flush` belong to the event loop; all else blocks: call it from a thread.

    `duplicates`: second completions for a request, which were not taken; final once it is closed. Entering raises
    DatasetError when another process holds the journal or it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.duplicates = 0
        self._lock = ProcessLock(path.with_suffix(".lock"))
        self._queue: queue.SimpleQueue[Completion | _Command] = queue.SimpleQueue()
        self._failure: DatasetError | None = None
        self._thread: threading.Thread | None = None
        self._discarded = False

    def __enter__(self) -> Journal:
        self._lock.acquire()
        try:
            connection = journal_rows.connect(self.path)
        except sqlite3.Error as error:
            self._lock.release()
            raise self._explain(error) from error
        except BaseException:
            self._lock.release()
            raise
        self._thread = threading.Thread(target=self._work, args=(connection,), name="journal", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._thread is not None:
            self._queue.put(_Command(None))
            self._thread.join()
            self._thread = None
            if self._discarded and self._failure is None:
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            self._lock.release()
        # An error already under way is the better news.
        if error is None:
            self._check()

    def put(self, completion: Completion) -> None:
        """Take a completion, committed within `COMMIT_EVERY_S`. Raises DatasetError when an earlier write failed."""
        self._check()
        self._queue.put(completion)

    async def flush(self) -> None:
        """Wait until everything put before is committed. Raises DatasetError when it cannot be."""
        await asyncio.wrap_future(self._submit(lambda connection: None))

    def find(self, keys: Iterable[Key]) -> dict[Key, Completion]:
        """The completions of these requests that the journal has."""
        wanted = list(keys)
        return self._call(lambda connection: journal_rows.find(connection, wanted))

    def attempts(self, row_keys: Iterable[str]) -> dict[Key, Completion]:
        """All completions of these row_keys that the journal has, whichever attempt."""
        wanted = list(row_keys)
        return self._call(lambda connection: journal_rows.attempts(connection, wanted))

    def pending(self) -> list[Completion]:
        """Those not yet in the dataset, in the order they came."""
        return self._call(journal_rows.pending)

    def mark_uploaded(self, keys: Iterable[Key]) -> None:
        """These are in the dataset's completions now."""
        marked = list(keys)
        self._call(lambda connection: journal_rows.mark_uploaded(connection, marked))

    def forget(self, keys: Iterable[Key]) -> None:
        """These are sealed: the journal need not have them any more, nor the attempts before them."""
        sealed = list(keys)
        self._call(lambda connection: journal_rows.forget(connection, sealed))

    def discard(self) -> None:
        """All of it is in the dataset: the file goes when the journal is closed."""
        self._discarded = True

    def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._submit(work).result()

    def _submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        self._check()
        assert self._thread is not None, "the journal is not open"
        command = _Command(work)
        self._queue.put(command)
        return command.future

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self, connection: sqlite3.Connection) -> None:
        """The writer thread: collect completions, commit, then run the command that ended the collection."""
        closing = False
        while not closing:
            batch, command = self._collect()
            try:
                if self._failure is None and batch:
                    self.duplicates += len(batch) - journal_rows.insert(connection, batch)
            except Exception as error:  # the thread's border: whatever it is, the callers must hear of it
                self._failure = self._explain(error)
            closing = command is not None and command.work is None
            if command is not None and not closing:
                self._run(command, connection)
        connection.close()

    def _collect(self) -> tuple[list[Completion], _Command | None]:
        item = self._queue.get()
        deadline = time.monotonic() + COMMIT_EVERY_S
        batch: list[Completion] = []
        while not isinstance(item, _Command):
            batch.append(item)
            try:
                item = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return batch, None
        return batch, item

    def _run(self, command: _Command, connection: sqlite3.Connection) -> None:
        if not command.future.set_running_or_notify_cancel():
            return
        try:
            self._check()
            command.future.set_result(command.work(connection))
        except (sqlite3.Error, OSError) as error:
            self._failure = self._explain(error)
            command.future.set_exception(self._failure)
        except BaseException as error:
            command.future.set_exception(error)

    def _explain(self, error: Exception) -> DatasetError:
        return DatasetError(
            f"the journal {self.path} cannot be used",
            value=f"{type(error).__name__}: {error}",
            expected="a healthy SQLite file on a disk with room",
            remedy="make room or repair the disk, then run again; DRAFTMILL_STATE names another folder",
        )


class _Command:
    """Work for the writer thread; `work` None ends it."""

    def __init__(self, work: Callable[[sqlite3.Connection], Any] | None) -> None:
        self.work: Any = work
        self.future: Future[Any] = Future()
