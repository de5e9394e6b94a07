"""Objects in a folder.

`create` is a temporary file, fsync and `os.link`: of all writers of a name one
wins, and the object is whole from the moment it is visible (fsspec's own local
create lets two writers win). Temporary files have hidden names, and go.

Refuses nothing by itself; what the disk refuses is a StorageFault that waiting
does not mend.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from draftmill.dataset.objects import Entry, Outcome, StorageFault


class LocalObjects:
    """The objects under `root`, an absolute path. Making one touches nothing."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self.conditional = True

    def check(self) -> None:
        """Nothing: a folder that is not there is an empty dataset, and its disk answers at once."""

    def create(self, path: str, data: bytes) -> Outcome:
        target = self._root / path
        with _writing():
            if target.exists():
                return Outcome.EXISTS
            with _temporary(target, data) as temporary:
                try:
                    os.link(temporary, target)
                except FileExistsError:
                    return Outcome.EXISTS
            _sync_folder(target.parent)
            return Outcome.CREATED

    def replace(self, path: str, data: bytes) -> None:
        target = self._root / path
        with _writing(), _temporary(target, data) as temporary:
            os.replace(temporary, target)
            _sync_folder(target.parent)

    def read(self, path: str) -> bytes:
        with _translated():
            return (self._root / path).read_bytes()

    def entry(self, path: str) -> Entry:
        with _translated():
            return self._entry(self._root / path)

    def entries(self, folder: str) -> list[Entry]:
        found = []
        with _translated():
            for above, _, names in os.walk(self._root / folder, onerror=_raise_unless_gone):
                for name in names:
                    path = Path(above, name)
                    try:
                        found.append(self._entry(path))
                    except FileNotFoundError:  # removed meanwhile, as temporary files are
                        continue
        return found

    def remove(self, path: str) -> None:
        with _translated():
            (self._root / path).unlink()

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with _translated(), (self._root / path).open("rb") as file:
            yield file

    def _entry(self, path: Path) -> Entry:
        stat = path.stat()
        modified = datetime.fromtimestamp(stat.st_mtime, UTC)
        return Entry(path.relative_to(self._root).as_posix(), stat.st_size, modified)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused(error) from error


@contextmanager
def _writing() -> Iterator[None]:
    """As `_translated`; to a writer a folder that is not there, and cannot be made, is no answer but a fault."""
    try:
        with _translated():
            yield
    except FileNotFoundError as error:
        raise _refused(error) from error


def _refused(error: OSError) -> StorageFault:
    return StorageFault(
        "",
        value=f"{type(error).__name__}: {error}",
        expected="a disk with room, where folders can be made, and the right to use it",
        remedy="see to the disk or correct the path, then run again: nothing that was finished is lost",
    )


@contextmanager
def _temporary(target: Path, data: bytes) -> Iterator[Path]:
    """The data in a file beside the target, on the disk itself, until the block ends."""
    _make_folder(target.parent)
    temporary = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
