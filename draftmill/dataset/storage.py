"""The objects of a dataset, in a folder or under an S3 prefix: create once, read, list.

One commit primitive, `create`: of all writers of a name exactly one gets
CREATED, and an object is complete from the moment it is visible. Only what is
derived from other objects (the card, the reports) may be replaced.

Promises: the same behaviour in both places; constructing a Storage touches
nothing; listings are never cached; an outage of the storage is waited for
(patience.py); whatever else the disk or the network refuses comes out as
DatasetError, except an object that is not there: FileNotFoundError, for the
caller to judge. All of it blocks: call it from a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import BinaryIO, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from draftmill.dataset.create_only import honours_create_only, locked, not_honoured
from draftmill.dataset.local_objects import LocalObjects
from draftmill.dataset.objects import Entry as Entry
from draftmill.dataset.objects import ObjectRef as ObjectRef
from draftmill.dataset.objects import Objects, StorageFault
from draftmill.dataset.objects import Outcome as Outcome
from draftmill.dataset.parquet import ROW_GROUP_ROWS as ROW_GROUP_ROWS
from draftmill.dataset.parquet import parquet_bytes as parquet_bytes
from draftmill.dataset.patience import START_S, Patience
from draftmill.dataset.place import normal_url as normal_url
from draftmill.errors import DatasetError
from draftmill.identity import sha256

Commit = Literal["create", "lock"]
"""The recipe's `commit`: what to do with a store that lets two writers create one object."""

T = TypeVar("T")


class Storage:
    """The objects of one dataset. `url`: a folder, `file://...` or `s3://bucket/prefix`."""

    def __init__(self, url: str, *, patience: Patience | None = None) -> None:
        self.url = normal_url(url)
        self._patience = patience or Patience()
        self._objects = _place(self.url)
        self._locks = False

    def check(self) -> None:
        """Whether it can be read: endpoint, credentials, bucket, rights. Nothing is written, and little waited for.

        Raises DatasetError. A prefix that is not there is an empty dataset.
        """
        self._ask("read", "", self._objects.check, silence_s=START_S)

    def check_writing(self, commit: Commit = "create") -> None:
        """Whether it can be written, and lets one writer win. Raises DatasetError; a store that does not let one win
        is refused, or with `commit="lock"` gets a lock object for each `exclusive`.
        """
        if not self.url.startswith("s3://"):
            return
        if not self._ask("write", "", lambda: honours_create_only(self._objects), silence_s=START_S):
            if commit != "lock":
                raise not_honoured(self.url)
            self._locks = True
            self._objects.conditional = False

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Around a `create` that decides who won. Nothing where the store decides; else a lock object is held.

        Raises DatasetError when another holds it for too long.
        """
        with ExitStack() as held:
            if self._locks:
                with self._explained("lock", "manifests"):
                    held.enter_context(locked(self._objects, self._patience, self.url))
            yield

    def stop_waiting(self) -> None:
        """Nothing waits for an outage to end any more: the run is over. Callable from any thread."""
        self._patience.stop()

    def create(self, path: str, data: bytes) -> Outcome:
        """Make an object unless one of that name exists. Raises DatasetError when it cannot be written.

        EXISTS may be our own: where an answer gets lost the put is sent again. Whoever must know who won puts a
        random id into the object and reads it back; what is named by its content need not.
        """
        return self._ask("write", path, lambda: self._objects.create(path, data))

    def replace(self, path: str, data: bytes) -> None:
        """Make an object, or another content of it: only for what is derived from others. Never half of it is seen."""
        self._ask("write", path, lambda: self._objects.replace(path, data))

    def read(self, path: str) -> bytes:
        """An object's bytes. Raises FileNotFoundError."""
        return self._ask("read", path, lambda: self._objects.read(path))

    def exists(self, path: str) -> bool:
        """Whether there is an object of that name."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def entry(self, path: str) -> Entry:
        """An object's size and time. Raises FileNotFoundError."""
        return self._ask("look at", path, lambda: self._objects.entry(path))

    def size(self, path: str) -> int:
        """An object's size in bytes. Raises FileNotFoundError."""
        return self.entry(path).bytes

    def entries(self, folder: str, *, hidden: bool = False) -> list[Entry]:
        """As `list`, with sizes in bytes and times (UTC). Hidden objects, as temporary files are, only where asked."""
        found = self._ask("list", folder, lambda: self._objects.entries(folder))
        shown = [entry for entry in found if hidden or not entry.path.rsplit("/", 1)[-1].startswith(".")]
        return sorted(shown, key=lambda entry: entry.path)

    def list(self, folder: str) -> list[str]:
        """As `entries`, the paths alone."""
        return [entry.path for entry in self.entries(folder)]

    def remove(self, path: str) -> None:
        """Remove an object; one that is not there is removed already."""
        try:
            self._ask("remove", path, lambda: self._objects.remove(path))
        except FileNotFoundError:
            return

    def put_table(self, folder: str, table: pa.Table) -> ObjectRef:
        """A table as `folder/<sha256>.parquet`; equal tables give equal bytes, so twice is once.

        Raises DatasetError when an object of that name has another size: somebody changed it.
        """
        return self.put_parquet(folder, parquet_bytes(table), table.num_rows)

    def put_parquet(self, folder: str, data: bytes, rows: int) -> ObjectRef:
        """A Parquet file of so many rows as `folder/<sha256>.parquet`. Raises as `put_table`."""
        name = sha256(data)
        ref = ObjectRef(path=f"{folder}/{name}.parquet", bytes=len(data), rows=rows, sha256=name)
        if self.create(ref.path, data) is Outcome.CREATED:
            return ref
        found = self.entry(ref.path)
        if found.bytes != ref.bytes:
            raise DatasetError(
                f"{ref.path} exists with other content than its name says",
                value=f"{found.bytes} bytes",
                expected=f"{ref.bytes} bytes",
                remedy="run `draftmill verify`; remove the damaged file, then run again",
            )
        if not found.is_fresh(datetime.now(UTC)):
            # The same bytes, with today's time: `gc` takes what is old and listed by no recent manifest.
            self.replace(ref.path, data)
        return ref

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A Parquet object, or only some of its columns: then only their bytes are fetched.

        Raises FileNotFoundError; DatasetError when it is damaged.
        """
        return self.read_parquet(path, lambda file: file.read(columns=None if columns is None else list(columns)))

    def read_parquet(self, path: str, read: Callable[[pq.ParquetFile], T]) -> T:
        """What `read` takes out of a Parquet object; it may be called again after an outage. Raises as `read_table`."""
        # Ranges that lie side by side become one request.
        return self.read_open(path, lambda file: read(pq.ParquetFile(file, pre_buffer=True)))

    def read_open(self, path: str, read: Callable[[BinaryIO], T]) -> T:
        """As `read_parquet`, for another reader of Parquet."""

        def attempt() -> T:
            with self._objects.open(path) as file:
                return read(file)

        try:
            return self._ask("read", path, attempt)
        except pa.ArrowException as error:
            raise DatasetError(
                f"{path} is no readable Parquet file",
                value=" ".join(str(error).split()),
                expected="the object as it was written",
                remedy="run `draftmill verify`, and restore the file from a copy",
            ) from error

    def _ask(self, verb: str, path: str, request: Callable[[], T], *, silence_s: float | None = None) -> T:
        if path.startswith("/") or ".." in path.split("/"):
            raise DatasetError(
                "a path that leaves the dataset",
                value=path,
                expected=f"an object under {self.url}",
                remedy="restore the manifest that names it from a copy",
            )
        with self._explained(verb, path):
            return self._patience.persist(request, silence_s=silence_s)

    @contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except StorageFault as fault:
            raise DatasetError(
                f"cannot {verb} {self.url}{'/' if path else ''}{path}{': ' if fault.what else ''}{fault.what}",
                value=fault.value,
                expected=fault.expected,
                remedy=fault.remedy,
            ) from fault


def open_storage(url: str) -> Storage:
    """The storage behind a dataset's URL. Raises RecipeError for a scheme it does not know."""
    return Storage(url)


def open_checked(url: str) -> Storage:
    """The same after a first look: for who reads at once. Raises what `check` raises, too."""
    storage = open_storage(url)
    storage.check()
    return storage


def _place(url: str) -> Objects:
    if not url.startswith("s3://"):
        return LocalObjects(url)
    # Imported here: it takes a second that local datasets need not wait.
    from draftmill.dataset.s3_objects import S3Objects

    return S3Objects(url.removeprefix("s3://"))
