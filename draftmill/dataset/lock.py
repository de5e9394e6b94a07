"""One process at a time: a lock file that dies with its holder.

`flock`, since the kernel releases it at SIGKILL, so that no stale lock ever
needs a person. The holder's pid stands in the file for messages only. A forked
child closes its copy, else it would keep the lock of a dead parent.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from draftmill.errors import DatasetError

_held: set[int] = set()


def _close_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


class ProcessLock:
    """An exclusive lock on a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises DatasetError with the holder's pid when another process has it."""
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise DatasetError(
                "another run of this dataset is in progress on this machine",
                value=f"process {holder or 'unknown'} holds {self.path}",
                expected="one run of a dataset at a time",
                remedy=f"wait for it, or end it: kill {holder or 'its process'}",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        _held.add(descriptor)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, since removing it would let two holders in."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            _held.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DatasetError(
                "the state folder cannot be written",
                value=f"{self.path.parent}: {error.strerror}",
                expected="a folder of this user's",
                remedy="repair its permissions, or set DRAFTMILL_STATE to another folder",
            ) from error
