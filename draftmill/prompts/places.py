"""Where prompts may lie: on a disk, under an S3 prefix, behind an https address.

Any other scheme is refused by name before anything is asked for: fsspec knows
some twenty more, each with a package, credentials and faults of its own, and
none of them is tested here.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from draftmill.errors import RecipeError

_SPELLED = {"file": "file", "s3": "s3", "s3a": "s3", "http": "http", "https": "https"}
"""Schemes, in any letter case, and what they are read as; Hadoop calls S3 s3a."""


def normal(path: str) -> str:
    """One of `prompts.path`, its scheme in the spelling that is used from here on. Raises RecipeError."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    known = _SPELLED.get(scheme.lower())
    if known is None:
        raise RecipeError(
            "prompts cannot be read from there",
            value=shown(path),
            expected="a file, a folder or a glob, file:///..., s3://bucket/... (also s3a://) or https://... (http://)",
            remedy="copy the prompts to one of these, then correct prompts.path; of other object stores, name the"
            " S3 endpoint (AWS_ENDPOINT_URL) if they have one",
        )
    if known == "s3" and not rest.strip("/"):
        raise RecipeError(
            "an S3 URL without a bucket",
            value=path,
            expected="s3://bucket or s3://bucket/prefix",
            remedy="correct prompts.path",
        )
    return f"{known}://{rest}"


def parts_of(path: str) -> tuple[str, ...]:
    """The names a path is made of, on a disk and under S3 alike."""
    return PurePosixPath(path).parts


def is_hidden(parts: Iterable[str]) -> bool:
    """Whether one of the names begins with `.` or `_`: such files are not read unless named outright."""
    return any(part.startswith((".", "_")) and part not in (".", "..") for part in parts)


def fixed_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """The names in front of the first that is a wildcard."""
    return tuple(itertools.takewhile(lambda part: not glob.has_magic(part), parts))


def shown(path: str) -> str:
    """A path for people and for the dataset: a URL without user, password and query, which may hold secrets."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    host, slash, name = rest.partition("/")
    if scheme.lower() in ("http", "https"):
        # Elsewhere `?` and `#` are letters of a name.
        name = name.partition("?")[0].partition("#")[0]
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{name}"
