"""Objects in a folder or under an S3 prefix: create once, read, list.

One commit primitive, `create`: of all writers of a name exactly one gets
CREATED, and an object is complete from the moment it is visible. Locally that
is a temporary file, fsync and `os.link` (fsspec's own local create lets two
writers win); on S3 a conditional put. There is no way to overwrite.

Promises: constructing a Storage touches nothing; listings are never cached;
whatever the disk or the network refuses comes out as DatasetError, except an
object that is not there: FileNotFoundError, for the caller to judge.
"""

from __future__ import annotations

import io
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from draftmill.errors import DatasetError, RecipeError
from draftmill.identity import sha256

ROW_GROUP_ROWS = 1024
"""Rows a Parquet row group holds: at 32k ids a row, a reader holds about 128 MB at once."""

CONFLICT_TRIES = 8
"""How often an S3 put is sent again after 409 (another conditional put of the name was under way)."""

CONFLICT_WAIT_S = 0.25
"""Between those; the other put is one small object."""


class Outcome(Enum):
    """Who made the object of that name."""

    CREATED = "created"
    EXISTS = "exists"


class ObjectRef(BaseModel):
    """A stored object: where it lies in the dataset, and what it must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    bytes: int
    rows: int
    sha256: str


class Storage:
    """The objects of one dataset. `url`: a folder, `file://...` or `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        self.url = normal_url(url)
        self._fs: Any
        self._faults: tuple[type[Exception], ...]
        if self.url.startswith("s3://"):
            self._root, self._faults = self.url.removeprefix("s3://"), _s3_faults()
            # s3fs sends a request again up to 5 times by itself. That stays: reads and puts of objects named by
            # content bear it, and the manifest's seal_id tells a lost answer from a lost race.
            self._fs = fsspec.filesystem("s3", use_listings_cache=False)
        else:
            self._root, self._faults = self.url, (OSError,)
            self._fs = fsspec.filesystem("file")
        self._create = self._put_new if self.url.startswith("s3://") else self._link_new

    def create(self, path: str, data: bytes) -> Outcome:
        """Make an object unless one of that name exists. Raises DatasetError when it cannot be written."""
        with self._explained("write", path):
            try:
                return self._create(self._at(path), data)
            except FileNotFoundError as error:
                # On S3: the bucket. Locally: the folder was removed under our hands.
                raise OSError(error.errno, f"{error} (bucket or folder is missing)") from error

    def read(self, path: str) -> bytes:
        """An object's bytes. Raises FileNotFoundError."""
        with self._explained("read", path):
            return bytes(self._fs.cat_file(self._at(path)))

    def exists(self, path: str) -> bool:
        """Whether there is an object of that name."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """An object's size in bytes. Raises FileNotFoundError."""
        with self._explained("look at", path):
            return int(self._fs.info(self._at(path))["size"])

    def list(self, folder: str) -> list[str]:
        """The objects under a folder ("" = all), as paths in the dataset, sorted; [] when there is none."""
        with self._explained("list", folder):
            try:
                found = self._fs.find(self._at(folder))
            except FileNotFoundError:
                return []
        paths = (str(path)[len(self._root) + 1 :] for path in found)
        # Some S3 servers list an emptied folder as a key of its own.
        inside = (path for path in paths if path.startswith(f"{folder}/" if folder else ""))
        return sorted(path for path in inside if not path.rsplit("/", 1)[-1].startswith("."))

    def remove(self, path: str) -> None:
        """Remove an object; one that is not there is removed already."""
        with self._explained("remove", path):
            try:
                # Not `rm`: on S3 that is a bulk delete, whose faults s3fs does not raise.
                self._fs.rm_file(self._at(path))
            except FileNotFoundError:
                return

    def put_table(self, folder: str, table: pa.Table) -> ObjectRef:
        """A table as `folder/<sha256>.parquet`; equal tables give equal bytes, so twice is once.

        Raises DatasetError when an object of that name has another size: somebody changed it.
        """
        data = parquet_bytes(table)
        name = sha256(data)
        ref = ObjectRef(path=f"{folder}/{name}.parquet", bytes=len(data), rows=table.num_rows, sha256=name)
        if self.create(ref.path, data) is Outcome.EXISTS and (size := self.size(ref.path)) != ref.bytes:
            raise DatasetError(
                f"{ref.path} exists with other content than its name says",
                value=f"{size} bytes",
                expected=f"{ref.bytes} bytes",
                remedy="run `draftmill verify`; remove the damaged file, then run again",
            )
        return ref

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A Parquet object, or only some of its columns. Raises FileNotFoundError; DatasetError when it is damaged."""
        with self._explained("read", path), self._fs.open(self._at(path), "rb") as file:
            try:
                return pq.ParquetFile(file).read(columns=None if columns is None else list(columns))
            except pa.ArrowException as error:
                raise DatasetError(
                    f"{path} is no readable Parquet file",
                    value=" ".join(str(error).split()),
                    expected="the object as it was written",
                    remedy="run `draftmill verify`, and restore the file from a copy",
                ) from error

    def _at(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise DatasetError(
                "a path that leaves the dataset",
                value=path,
                expected=f"an object under {self.url}",
                remedy="restore the manifest that names it from a copy",
            )
        return f"{self._root}/{path}"

    @contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except self._faults as error:
            raise DatasetError(
                f"cannot {verb} {self.url}/{path}",
                value=f"{type(error).__name__}: {error}",
                expected="a storage that answers, with room and the right to do so",
                remedy="see to the storage, then run again: nothing that was finished is lost",
            ) from error

    def _link_new(self, target: str, data: bytes) -> Outcome:
        path = Path(target)
        if path.exists():
            return Outcome.EXISTS
        _make_folder(path.parent)
        temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return Outcome.EXISTS
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
        return Outcome.CREATED

    def _put_new(self, target: str, data: bytes) -> Outcome:
        for _ in range(CONFLICT_TRIES):
            try:
                self._fs.pipe_file(target, data, mode="create")
                return Outcome.CREATED
            except OSError as error:
                status = _http_status(error)
                if isinstance(error, FileExistsError) or status == 412:
                    return Outcome.EXISTS
                if status != 409:
                    raise
            time.sleep(CONFLICT_WAIT_S)
        raise OSError("409 Conflict: another put of the same name does not end")


def open_storage(url: str) -> Storage:
    """The storage behind a dataset's URL. Raises RecipeError for a scheme it does not know."""
    return Storage(url)


def normal_url(url: str) -> str:
    """One spelling for one place: absolute local paths, no slash at the end. Raises RecipeError."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "s3" and rest.strip("/"):
        return f"s3://{rest.strip('/')}"
    if not separator or (scheme == "file" and rest):
        return os.path.abspath(os.path.expanduser(rest if separator else url))
    raise RecipeError(
        "not a place for a dataset",
        value=url,
        expected="a folder, file:///... or s3://bucket/prefix",
        remedy="correct the dataset's URL",
    )


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as Parquet, zstd. Depends on its rows and columns only, not on how its memory is cut into pieces."""
    sink = io.BytesIO()
    plain = table.replace_schema_metadata(None).combine_chunks()
    pq.write_table(plain, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()


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


def _s3_faults() -> tuple[type[Exception], ...]:
    # Imported here: it takes a second that local datasets need not wait.
    from botocore.exceptions import BotoCoreError, ClientError

    return (OSError, BotoCoreError, ClientError)


def _http_status(error: OSError) -> int | None:
    # s3fs translates botocore's error and keeps it as the cause.
    response = getattr(error.__cause__, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None
