"""Where an export goes: a new or empty folder, or prefix in a bucket, as a file system whose root it is.

Files are written in pieces, since a part of an export is larger than memory; S3 takes
them as multipart uploads, which s3fs tries again by itself. Nothing here decides who
wins, as a dataset's commit does: `export.json`, the last write, says that all is there.

Promises: whatever the place refuses comes out as DatasetError; no bucket is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
from fsspec import AbstractFileSystem

from draftmill.dataset.objects import StorageFault
from draftmill.dataset.place import normal_url
from draftmill.dataset.storage import open_checked
from draftmill.errors import DatasetError, RecipeError


def empty_place(out: str) -> AbstractFileSystem:
    """The file system whose root is `out`. Raises RecipeError where something is there, DatasetError where it cannot
    be made or looked at."""
    url = normal_url(out)
    with writing(out):
        if url.startswith("s3://"):
            open_checked(url)
            files, root = _s3(), url.removeprefix("s3://")
        else:
            files, root = fsspec.filesystem("file"), url
        if files.exists(root) and (files.isfile(root) or files.ls(root, detail=False)):
            raise RecipeError(
                "the place to export to is not empty",
                value=out,
                expected="a new or empty one, so that no file of another export is taken for one of this",
                remedy="name another, or remove what is there",
            )
        if not url.startswith("s3://"):
            files.makedirs(root, exist_ok=True)
    return fsspec.filesystem("dir", path=root, fs=files)


@contextmanager
def writing(out: str) -> Iterator[None]:
    """Whatever the place, or the folder for temporary files, refuses inside the block as DatasetError."""
    try:
        yield
    except Exception as error:
        fault = _fault(out, error)
        if fault is None:
            raise
        raise DatasetError(
            f"cannot export to {out}{': ' if fault.what else ''}{fault.what}",
            value=fault.value,
            expected=fault.expected,
            remedy=fault.remedy,
        ) from error


def _s3() -> AbstractFileSystem:
    # Imported here and below: it takes a second that local exports need not wait.
    from draftmill.dataset.s3_objects import region_settings

    return fsspec.filesystem("s3", use_listings_cache=False, client_kwargs=region_settings())


def _fault(out: str, error: Exception) -> StorageFault | None:
    """What is the matter, if it is the place and not a mistake of ours."""
    if out.startswith("s3://"):
        from draftmill.dataset.s3_faults import fault, is_fault
        from draftmill.dataset.s3_objects import client_of

        return fault(error, client_of(_s3())) if is_fault(error) else None
    if not isinstance(error, OSError):
        return None
    return StorageFault(
        "",
        value=f"{type(error).__name__}: {error}",
        expected="room for the export, as much for temporary files (TMPDIR), and the right to write there",
        remedy="see to the disks or name another folder; remove what was begun, then export again",
    )
