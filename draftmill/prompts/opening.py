"""Opening a prompt file, wherever it lies and however it is packed.

`open_raw` gives the bytes as they lie, `open_utf8` unpacked (see `compression`)
and, where a byte-order mark says UTF-16 or UTF-32, turned into UTF-8, so that
every reader of text knows one encoding. Listings and blocks are never cached
from one opening to the next.

Whatever the disk, the network, the packing or the encoding refuses comes out as
SourceError with the file's name; a URL is shown without what may be secret.
"""

from __future__ import annotations

import codecs
import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import aiohttp
import fsspec
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from draftmill.dataset.s3_faults import Cause, cause_of, fault, is_fault, unusable
from draftmill.dataset.s3_objects import client_of, region_settings
from draftmill.errors import SourceError
from draftmill.prompts.compression import Damaged, unpacked
from draftmill.prompts.places import shown as shown

HEAD_BYTES = 2**16
"""Bytes a format is told by: the first line of nearly every file of prompts."""

BLOCK_BYTES = 2**16
"""Bytes decoded at a time."""

FETCHED_BYTES = 4 * 2**20
"""Bytes asked of S3 at a time. s3fs's own 50 MB would be fetched for each look at a file's beginning."""

UNREADABLE = (OSError, aiohttp.ClientError, BotoCoreError, ClientError, ResponseParserError)
"""What local files, https and S3 raise when a file is not there or not ours."""

S3 = "s3://"

_WORDS_OF_READING = {
    Cause.DENIED: (
        "the rights to list the bucket and to get the objects under the prefix",
        "have the bucket's owner grant them, or use another profile; then run again",
    ),
    Cause.SETTINGS: (
        "a bucket's name, an endpoint (http:// or https://) and settings that S3 clients take",
        "correct prompts.path, AWS_ENDPOINT_URL or the profile",
    ),
    Cause.NO_BUCKET: (
        "a bucket that exists",
        "correct the bucket's name in prompts.path, or the endpoint",
    ),
}
"""What is expected, and what to do, where a dataset, which is also written, asks for more."""

_WIDE = {
    # Longest first: UTF-16's mark is the beginning of UTF-32's.
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@contextmanager
def open_raw(path: str) -> Iterator[io.BufferedReader]:
    """The file's bytes as they lie. Raises SourceError when it cannot be opened or read."""
    try:
        with _open(path) as raw:
            yield raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)
    except UNREADABLE as error:
        # Without the chain: its texts are the server's own, and may quote the key.
        raise unreadable(path, error) from None


@contextmanager
def open_utf8(path: str) -> Iterator[io.BufferedReader]:
    """The file unpacked, wide encodings as UTF-8. Raises SourceError, also when it is cut or damaged."""
    with open_raw(path) as raw:
        try:
            plain = unpacked(raw)
            start = plain.peek(4)
            encoding = next((name for mark, name in _WIDE.items() if start.startswith(mark)), None)
            yield plain if encoding is None else io.BufferedReader(_Transcoded(plain, encoding), BLOCK_BYTES)
        except Damaged as error:
            raise _damaged(path, error) from error
        except _NotText as error:
            raise SourceError(
                f"a file whose byte-order mark says {error.encoding} is not {error.encoding}",
                value=f"{shown(path)}: {error}",
                expected="one encoding from the first byte to the last",
                remedy="write the file again, best as UTF-8",
            ) from error


def head(path: str) -> bytes:
    """The first HEAD_BYTES of a file, as `open_utf8` gives them."""
    with open_utf8(path) as stream:
        return stream.read(HEAD_BYTES)


def file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system behind a URL and the path in it. A listing that another process changed is seen."""
    # Sent again by s3fs where that helps: reading prompts is over in minutes, long outages are not waited for.
    options = {"use_listings_cache": False, "client_kwargs": region_settings()} if url.startswith(S3) else {}
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, str(path)


def unreadable(path: str, error: Exception) -> SourceError:
    """The error for a file or folder that the disk or the network does not give."""
    error = _told_by_listing(path, error)
    if path.startswith(S3) and (is_fault(error) or isinstance(error, ValueError)):
        client = client_of(file_system(path)[0])
        cause = unusable(error, client) if isinstance(error, ValueError) else fault(error, client)
        expected, remedy = _WORDS_OF_READING.get(_cause(error), (cause.expected, cause.remedy))
        return SourceError(
            f"cannot read prompts from {shown(path)}: {cause.what}",
            value=cause.value,
            expected=expected,
            remedy=remedy,
        )
    # A library's own words may quote a URL with what is secret in it.
    words = getattr(error, "strerror", None) or ("no more is known" if "://" in path else " ".join(str(error).split()))
    return SourceError(
        "a prompt file cannot be read",
        value=f"{shown(path)}: {type(error).__name__}: {words}",
        expected="a file that this user can read",
        remedy="check that it exists, its permissions and, for a URL, the network and the credentials",
    )


def _cause(error: Exception) -> Cause:
    return Cause.SETTINGS if isinstance(error, ValueError) else cause_of(error)


def bucket_fault(path: str) -> Exception | None:
    """What keeps an S3 bucket from being listed at `path`: no bucket of that name, a wrong secret; None if nothing."""
    fs, inside = file_system(path)
    bucket, _, key = inside.partition("/")
    prefix = "".join(itertools.takewhile(lambda sign: sign not in "*?[", key))
    try:
        fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except (*UNREADABLE, ValueError) as error:
        return error
    return None


def _told_by_listing(path: str, error: Exception) -> Exception:
    """The same error, or the one behind it: an answer to HEAD is 403 or 404 for many causes, and says none."""
    if not path.startswith(S3) or not isinstance(error, PermissionError | FileNotFoundError):
        return error
    behind = bucket_fault(path)
    return error if behind is None or not is_fault(behind) else behind


class _NotText(Exception):
    def __init__(self, encoding: str, words: str) -> None:
        super().__init__(words)
        self.encoding = encoding


class _Transcoded(io.RawIOBase):
    """A wide encoding as UTF-8, without its byte-order mark."""

    def __init__(self, source: IO[bytes], encoding: str) -> None:
        self._source = source
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = b""
        self._read_bytes = 0
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending and not self._ended:
            self._pending = self._decoded().encode()
        size = min(len(buffer), len(self._pending))
        buffer[:size], self._pending = self._pending[:size], self._pending[size:]
        return size

    def _decoded(self) -> str:
        block = self._source.read(BLOCK_BYTES)
        self._ended = not block
        try:
            text = self._decoder.decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            raise _NotText(self._encoding, f"{error.reason} after byte {self._read_bytes}") from error
        self._read_bytes += len(block)
        return text


def _open(path: str) -> Any:
    if "://" not in path:
        return open(path, "rb")
    fs, inside = file_system(path)
    return fs.open(inside, "rb", **({"block_size": FETCHED_BYTES} if path.startswith(S3) else {}))


def _damaged(path: str, error: Damaged) -> SourceError:
    words = "ends early" if error.cut else "is damaged"
    return SourceError(
        f"a {error.packing} file {words}",
        value=f"{shown(path)}, read up to byte {error.byte}" + ("" if error.cut else f": {error}"),
        expected=f"whole {error.packing} data: rows behind a cut would look like removed prompts",
        remedy="fetch or write the file again",
    )
