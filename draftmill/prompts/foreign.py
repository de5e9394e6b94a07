"""Files that people take for prompts and that hold none one could read here, by their first bytes.

Only for the words of a refusal: what such a file is and how to get prompts out
of it, instead of "no known format".
"""

from __future__ import annotations

import codecs
import re

from draftmill.errors import SourceError
from draftmill.prompts.opening import shown

_WORKBOOK_PARTS = (b"[Content_Types].xml", b"xl/", b"_rels/", b"docProps/")
"""Names of parts with which every Office file begins."""

_UNPACK = "unpack it; single files may stay packed as gzip, zstd, bzip2 or xz"

_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", _UNPACK),
    (b"PK\x05\x06", "an empty zip archive", "look where it comes from"),
    (b"\xd0\xcf\x11\xe0", "an old Office file (.xls, .doc)", "save the sheet as `CSV UTF-8`"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"Rar!", "a rar archive", _UNPACK),
    (b"\x04\x22\x4d\x18", "packed by lz4", "pack it as gzip or zstd, or not at all"),
    (b"\xff\x06\x00\x00sNaPpY", "packed by snappy", "pack it as gzip or zstd, or not at all"),
    (b"SQLite format 3\x00", "an SQLite database", "export the table as CSV or JSON lines"),
    (b"PARE", "an encrypted Parquet file", "write it unencrypted"),
    (b"ORC", "an ORC file", "write it as Parquet"),
    (b"Obj\x01", "an Avro file", "write it as Parquet or JSON lines"),
    (b"\x93NUMPY", "a NumPy array", "write prompts as JSON lines"),
    (b"\x89HDF", "an HDF5 file", "write it as Parquet"),
    (b"%PDF", "a PDF", "write prompts as JSON lines"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`"),
)
"""First bytes, what begins so, and what to do."""

_LETTERS = (b"ORC", b"PARE")
"""Of these, words that a table's header may begin with as well."""

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""What no text holds."""

_PAGE = "a link to a page about the file? Name the file itself"

_MARKUP: tuple[tuple[tuple[bytes, ...], str, str], ...] = (
    ((b"<!doctype html", b"<html", b"<head", b"<body", b"<!--"), "a web page", _PAGE),
    ((b"<?xml", b"<error"), "XML, as servers answer with when they refuse", "fetch it again, and look what it says"),
)
"""The same for what begins with a tag, in lower case and behind white space."""

LONGEST_TAG = 16
"""Bytes looked at for one of them."""

_TAR_MAGIC, _TAR_PLACE = b"ustar", 257


def refuse_kind(path: str, head: bytes) -> None:
    """Raise SourceError for a file that is known to be no prompts. `head`: its first bytes, unpacked."""
    if (found := _kind(head)) is None:
        return
    what, remedy = found
    raise SourceError(
        f"a prompt file that is {what}",
        value=shown(path),
        expected="JSON lines, JSON, CSV, Parquet or a folder of Hugging Face `datasets`",
        remedy=remedy,
    )


def _kind(head: bytes) -> tuple[str, str] | None:
    if head[_TAR_PLACE : _TAR_PLACE + len(_TAR_MAGIC)] == _TAR_MAGIC:
        return "a tar archive", _UNPACK
    found = next(((what, remedy) for magic, what, remedy in _KINDS if _begins(head, magic)), None)
    if found and head.startswith(b"PK") and any(part in head for part in _WORKBOOK_PARTS):
        return "an Office file (.xlsx, .docx)", "save the sheet as `CSV UTF-8`"
    return found or _markup(head.removeprefix(codecs.BOM_UTF8).lstrip()[:LONGEST_TAG].lower())


def _begins(head: bytes, magic: bytes) -> bool:
    return head.startswith(magic) and (magic not in _LETTERS or _CONTROL.search(head) is not None)


def _markup(start: bytes) -> tuple[str, str] | None:
    return next(((what, remedy) for tags, what, remedy in _MARKUP if start.startswith(tags)), None)
