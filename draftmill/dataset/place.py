"""Where a dataset may lie: a folder, or a prefix in a bucket; one spelling for each place.

Refuses what is neither, before anything is opened: other schemes, a scheme with
one slash (`s3:/bucket` would be a folder named `s3:`), an empty or dotted part
of a prefix, as a shell's empty variable leaves it (no listing finds such keys
again), and credentials, which belong into no URL.

Promises: what may be a secret is in no error.
"""

from __future__ import annotations

import os
import re

from draftmill.errors import RecipeError

_LIKE_A_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Two letters and more: `C:/data` is a folder."""

_NO_PARTS = frozenset({"", ".", ".."})


def normal_url(url: str) -> str:
    """One spelling for one place: absolute local paths, no slash at the end. Raises RecipeError."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    else:
        _refuse_credentials(url, scheme, rest)
    if scheme == "s3":
        return f"s3://{_prefix(url, rest)}"
    if not rest:
        raise _no_place(url, remedy="name one; was a variable empty?")
    if scheme not in ("", "file") or (not scheme and _LIKE_A_SCHEME.match(url)):
        raise _no_place(url, remedy="correct it: known are s3:// and file://, in small letters and with two slashes")
    return os.path.abspath(os.path.expanduser(rest))


def _refuse_credentials(url: str, scheme: str, rest: str) -> None:
    host = rest.partition("/")[0]
    # A secret may have a slash in it: then what ends it is further on, but no bucket's name has a colon.
    if "@" in host or (scheme == "s3" and ":" in host):
        raise RecipeError(
            "a URL must not carry credentials: it is stored with the dataset",
            value=_shown(url),
            expected="a folder, file:///... or s3://bucket/prefix",
            remedy="leave them out; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        )


def _prefix(url: str, rest: str) -> str:
    """`bucket` or `bucket/prefix`."""
    parts = rest.removesuffix("/").split("/")
    if not _NO_PARTS.isdisjoint(parts):
        raise _no_place(
            url, remedy="name each part between two slashes, none of them `.` or `..`; was a variable empty?"
        )
    return "/".join(parts)


def _no_place(url: str, *, remedy: str) -> RecipeError:
    return RecipeError(
        "not a place for a dataset",
        value=_shown(url) or "nothing",
        expected="a folder, file:///... or s3://bucket/prefix",
        remedy=remedy,
    )


def _shown(url: str) -> str:
    """The URL for a message, or of one that may hold a secret (credentials, a signature) its scheme alone."""
    scheme, _, rest = url.partition(":")
    return f"{scheme}:... (the rest may hold a secret)" if "@" in rest or "?" in rest or ":" in rest else url
