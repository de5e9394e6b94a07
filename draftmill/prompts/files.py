"""The files a recipe's `prompts.path` means, and how they are opened.

A path is a file, a folder, a glob or a URL (s3, https: whatever fsspec knows).
Folders are read recursively in sorted order, so that every run sees the same
order; names that begin with `.` or `_` are left out at every level (Spark's
`_SUCCESS` and `_temporary`, checksums, AppleDouble). A file named outright is
always read. Gzip is told by its first bytes, never by the name; a gzip file
that ends early is refused as a whole: the rows behind the cut are unknown.
"""

from __future__ import annotations

import glob
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import aiohttp
import fsspec
from botocore.exceptions import BotoCoreError

from draftmill.errors import RecipeError, SourceError

GZIP_MAGIC = b"\x1f\x8b"

HEAD_BYTES = 4096
"""Bytes a format is told by: more than any magic number or first key."""

_UNREADABLE = (OSError, aiohttp.ClientError, BotoCoreError)
"""What local files, https and S3 raise when a file is not there or not ours."""


def find_files(paths: list[str]) -> list[str]:
    """Every file that `paths` mean, in order and each once. Raises RecipeError for one that matches nothing."""
    found = [file for path in paths for file in _expand(path)]
    return list(dict.fromkeys(found))


def is_named(file: str, paths: list[str]) -> bool:
    """Whether `paths` name this very file, not a folder or glob that holds it."""
    return file in {path if "://" in path else str(Path(path)) for path in paths}


def shown(path: str) -> str:
    """A path for people and for the dataset: a URL without user, password and query, which may hold secrets."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    host, slash, name = rest.partition("/")
    if scheme in ("http", "https"):
        # Elsewhere `?` and `#` are letters of a name.
        name = name.partition("?")[0].partition("#")[0]
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{name}"


@contextmanager
def open_raw(path: str) -> Iterator[IO[bytes]]:
    """The file's bytes as they lie. Raises SourceError when it cannot be opened or read."""
    try:
        with _open(path) as raw:
            yield raw
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


@contextmanager
def open_unpacked(path: str) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked when they are gzip, all members. Raises SourceError, also for a cut gzip file."""
    with open_raw(path) as raw:
        buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
        if not buffered.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
            yield buffered
            return
        try:
            with gzip.GzipFile(fileobj=buffered) as unpacked:
                yield unpacked  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _cut(path, raw.tell(), error) from error


def head(path: str) -> bytes:
    """The first HEAD_BYTES of a file, unpacked."""
    with open_unpacked(path) as stream:
        return stream.read(HEAD_BYTES)


def _expand(path: str) -> list[str]:
    if "://" in path and not path.startswith("file://"):
        return _expand_url(path)
    local = Path(path.removeprefix("file://"))
    if local.is_file():
        return [str(local)]
    if local.is_dir():
        return [str(file) for file in _walk(local, frozenset())]
    if glob.has_magic(path):
        base = _fixed_part(local)
        matches = sorted(Path(match) for match in glob.glob(str(local), recursive=True))
        shown_matches = [match for match in matches if not _hidden(match.relative_to(base))]
        files = [f for m in shown_matches for f in ([m] if m.is_file() else _walk(m, frozenset()))]
        if files:
            return [str(file) for file in files]
    raise _missing(path)


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    # Links to folders are followed, since data is often linked in; `above` ends a circle.
    real = folder.resolve()
    if real in above:
        return
    for entry in sorted(folder.iterdir()):
        if _hidden(Path(entry.name)):
            continue
        if entry.is_dir():
            yield from _walk(entry, above | {real})
        elif entry.is_file():
            yield entry


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and part not in (".", "..") for part in path.parts)


def _fixed_part(pattern: Path) -> Path:
    fixed = Path(pattern.anchor)
    for part in pattern.relative_to(pattern.anchor).parts:
        if glob.has_magic(part):
            break
        fixed /= part
    return fixed


def _expand_url(url: str) -> list[str]:
    if urlsplit(url).scheme in ("http", "https"):
        # No listing over http, and `?` belongs to the query there.
        return [url]
    try:
        fs, path = fsspec.core.url_to_fs(url, **_options(url))
        if glob.has_magic(path):
            matches, base = fs.glob(path), str(_fixed_part(Path(path)))
        elif fs.isdir(path):
            matches, base = fs.find(path), path
        else:
            matches, base = [path] if fs.exists(path) else [], path
    except _UNREADABLE as error:
        raise _unreadable(url, error) from error
    files = [m for m in sorted(matches) if not _hidden(Path(m.removeprefix(base)))]
    if not files:
        raise _missing(shown(url))
    return [fs.unstrip_protocol(file) for file in files]


def _options(path: str) -> dict[str, Any]:
    # A listing made by another process must be seen: never from a cache.
    return {"use_listings_cache": False} if path.startswith(("s3://", "s3a://")) else {}


def _open(path: str) -> IO[bytes]:
    if "://" not in path:
        return open(path, "rb")
    return fsspec.open(path, "rb", **_options(path)).open()  # type: ignore[no-any-return]


def _missing(path: str) -> RecipeError:
    return RecipeError(
        "no such prompts",
        value=path,
        expected="a file, a folder, a glob that matches or a URL, relative to the folder the command runs in",
        remedy="correct prompts.path",
    )


def _unreadable(path: str, error: Exception) -> SourceError:
    return SourceError(
        "a prompt file cannot be read",
        value=f"{shown(path)}: {type(error).__name__}: {getattr(error, 'strerror', None) or 'no more is known'}",
        expected="a file that this user can read",
        remedy="check that it exists, its permissions and, for a URL, the network and the credentials",
    )


def _cut(path: str, byte: int, error: Exception) -> SourceError:
    words = "ends early" if isinstance(error, EOFError) else f"is damaged ({error})"
    return SourceError(
        f"a gzip file {words}",
        value=f"{shown(path)}, read up to byte {byte}",
        expected="whole gzip members: rows behind a cut would look like removed prompts",
        remedy="fetch or write the file again",
    )
