"""The files a recipe's `prompts` mean.

A path is a file, a folder, a glob or a URL (s3, https: see `places`), or a list
of those. Folders are read recursively, in the order of their names
level by level, so that every run sees the same order wherever they lie; names
that begin with `.` or `_` are left out at every level (Spark's `_SUCCESS` and
`_temporary`, checksums, AppleDouble). A file named outright is always read.
Where a folder says itself which of its files are rows, and of which split, it
is asked (see `saved`).
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from draftmill.errors import RecipeError
from draftmill.prompts import saved
from draftmill.prompts.opening import S3, UNREADABLE, bucket_fault, file_system, shown, unreadable
from draftmill.prompts.places import fixed_parts, is_hidden, normal, parts_of
from draftmill.prompts.source_row import SourceFile as SourceFile
from draftmill.recipe import Prompts

FOLDER_FORMATS = ("auto", "huggingface")
"""With any other `prompts.format` all files of a folder are meant."""


def find_files(prompts: Prompts) -> list[SourceFile]:
    """Every file that the recipe means, in order and each once.

    Raises RecipeError for a scheme that is not known, a path that matches nothing and a split that a folder does not
    have; SourceError when the disk or the network does not answer.
    """
    found: dict[str, SourceFile] = {}
    for path in prompts.paths:
        for file in _expand(normal(path), prompts):
            if file.path not in found or file.named or found[file.path].beside:
                found[file.path] = file
    return list(found.values())


def _expand(path: str, prompts: Prompts) -> Iterable[SourceFile]:
    is_url = "://" in path and not path.startswith("file://")
    try:
        named, listed = _expand_url(path) if is_url else _expand_local(path)
    except (*UNREADABLE, ValueError) as error:  # ValueError: botocore's, of an endpoint that is no URL
        raise unreadable(path, error) from None
    if named:
        return [SourceFile(named, named=True)]
    if not listed:
        # Where s3fs lists nothing, it may not have been allowed to.
        if path.startswith(S3) and (fault := bucket_fault(path)) is not None:
            raise unreadable(path, fault)
        raise _missing(shown(path))
    if prompts.format not in FOLDER_FORMATS:
        return [SourceFile(file) for file in listed]
    return list(saved.resolve(listed, prompts.split))


def _expand_local(path: str) -> tuple[str | None, list[str]]:
    """The file itself, or the files in it or that match it."""
    local = Path(path.removeprefix("file://"))
    if local.is_file():
        return str(local), []
    if local.is_dir():
        return None, _sorted(_walk(local, frozenset()))
    if not glob.has_magic(path):
        return None, []
    fixed = _fixed_part(str(local))
    matches = [Path(match) for match in glob.glob(str(local), recursive=True)]
    meant = [match for match in matches if not is_hidden(match.relative_to(fixed).parts)]
    return None, _sorted(f for m in meant for f in ([m] if m.is_file() else _walk(m, frozenset())))


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    # Links to folders are followed, since data is often linked in; `above` ends a circle.
    real = folder.resolve()
    if real in above:
        return
    for entry in sorted(folder.iterdir()):
        if is_hidden((entry.name,)):
            continue
        if entry.is_dir():
            yield from _walk(entry, above | {real})
        elif entry.is_file():
            yield entry


def _expand_url(url: str) -> tuple[str | None, list[str]]:
    if urlsplit(url).scheme in ("http", "https"):
        # No listing over http, and `?` belongs to the query there.
        return url, []
    fs, path = file_system(url)
    if not url.endswith("/") and _kind(fs, path) == "file":
        return fs.unstrip_protocol(path), []
    if glob.has_magic(path):
        base = _fixed_part(path)
        matches = fs.glob(path, detail=True)
        # Some of the matches are folders.
        listed = {f for m, info in matches.items() for f in ([m] if info["type"] == "file" else fs.find(m))}
    else:
        base, listed = path, set(fs.find(path)) - {path}
    # S3 servers list an emptied folder, or one made by hand, as a key of its own.
    keys = (key for key in listed if not key.endswith("/") and not is_hidden(parts_of(key.removeprefix(base))))
    return None, [fs.unstrip_protocol(key) for key in _sorted(keys)]


def _kind(fs: Any, path: str) -> str | None:
    # Not `isfile`: that takes every fault, a wrong secret too, for "no".
    try:
        return str(fs.info(path)["type"])
    except FileNotFoundError:
        return None


def _sorted(paths: Iterable[Path | str]) -> list[str]:
    # Level by level: the same order on disk and on S3, where `a-b/` would come before `a/`.
    return sorted({str(path) for path in paths}, key=parts_of)


def _fixed_part(pattern: str) -> str:
    """The folder in front of the first wildcard: its own names may begin with a dot."""
    return str(PurePosixPath(*fixed_parts(parts_of(pattern))))


def _missing(path: str) -> RecipeError:
    return RecipeError(
        "no such prompts",
        value=path,
        expected="a file, a folder, a glob that matches or a URL, relative to the folder the command runs in",
        remedy="correct prompts.path",
    )
