"""Packed bytes as plain ones: gzip, zstd, bzip2 and xz, told by their first bytes, never by the name.

Files may be glued together from several members or frames (`cat a.gz b.gz`,
pigz, pzstd, Hadoop): all are read. What ends early, has a wrong checksum or
goes on with something else raises Damaged with the byte up to which it was
read: a decoder that stops there in silence would lose the rows behind it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

BLOCK_BYTES = 2**16
"""Packed bytes taken at a time."""

MAGIC_BYTES = 6
"""The longest of the magic numbers below."""

SUFFIXES = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz")
"""Endings that packing adds to a name; they say nothing else."""


_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException)
"""What the decoders raise for bytes they cannot unpack."""


class Damaged(Exception):
    """Packed data that cannot be unpacked to its end. `cut`: it ends early."""

    def __init__(self, packing: str, byte: int, words: str, *, cut: bool) -> None:
        super().__init__(words)
        self.packing = packing
        self.byte = byte
        self.cut = cut


def unpacked(raw: io.BufferedReader) -> io.BufferedReader:
    """The plain bytes of `raw`, which may be packed or not. Reading raises Damaged."""
    packing, make = _packing(raw.peek(MAGIC_BYTES)[:MAGIC_BYTES])
    if make is None:
        return raw
    source = _Source(raw)
    return io.BufferedReader(_Explained(packing, source, make), BLOCK_BYTES)


def without_packing(name: str) -> str:
    """A file's name in lower case without the ending that packing adds."""
    lower = name.lower()
    suffix = next((suffix for suffix in SUFFIXES if lower.endswith(suffix)), "")
    return lower.removesuffix(suffix)


class _Source(io.RawIOBase):
    """The packed bytes; remembers how far they were read and what the disk or the network refused."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self.byte = 0
        self.ended = False
        self.refused: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            size = self._raw.readinto1(buffer)
        except Exception as error:
            self.refused = error
            raise
        self.byte += size
        self.ended = self.ended or (size == 0 and len(buffer) > 0)
        return size


class _Explained(io.RawIOBase):
    """A decoder's output; its faults as Damaged, and the source's own faults as they are."""

    def __init__(self, packing: str, source: _Source, make: Callable[[_Source], Any]) -> None:
        self._packing = packing
        self._source = source
        self._plain = make(source)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._plain.readinto(buffer))
        except _FAULTS as error:
            if self._source.refused is not None:
                raise self._source.refused from error
            # pyarrow has one error for both, but asks for more behind the end only when something is missing there.
            cut = isinstance(error, EOFError) or (self._packing == "zstd" and self._source.ended)
            raise Damaged(self._packing, self._source.byte, str(error), cut=cut) from error


class _Decoder(Protocol):
    """What bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Streams(io.RawIOBase):
    """One stream after the other. (The stdlib's BZ2File and LZMAFile ignore what they do not understand behind one.)"""

    def __init__(self, source: _Source, new: Callable[[], _Decoder]) -> None:
        self._source = source
        self._new = new
        self._decoder = new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            block = b""
            if self._decoder.eof:
                # xz pads with zeros between streams.
                block = (self._decoder.unused_data or self._source.read(BLOCK_BYTES)).lstrip(b"\0")
                while not block:
                    if not (more := self._source.read(BLOCK_BYTES)):
                        return 0
                    block = more.lstrip(b"\0")
                self._decoder = self._new()
            elif self._decoder.needs_input and not (block := self._source.read(BLOCK_BYTES)):
                raise EOFError("the data ends inside a stream")
            if plain := self._decoder.decompress(block, len(buffer)):
                buffer[: len(plain)] = plain
                return len(plain)


def _gzip(source: _Source) -> Any:
    return gzip.GzipFile(fileobj=io.BufferedReader(source, BLOCK_BYTES))


def _zstd(source: _Source) -> Any:
    return pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")


def _bz2(source: _Source) -> Any:
    return _Streams(source, bz2.BZ2Decompressor)


def _xz(source: _Source) -> Any:
    return _Streams(source, lzma.LZMADecompressor)


def _packing(start: bytes) -> tuple[str, Callable[[_Source], Any] | None]:
    if start.startswith(b"\x1f\x8b"):
        return "gzip", _gzip
    # The second is a frame to be skipped, with which pzstd begins.
    if start.startswith(b"\x28\xb5\x2f\xfd") or (start[1:4] == b"\x2a\x4d\x18" and start[0] & 0xF0 == 0x50):
        return "zstd", _zstd
    if start.startswith(b"BZh") and start[3:4].isdigit():
        return "bzip2", _bz2
    if start.startswith(b"\xfd7zXZ\x00"):
        return "xz", _xz
    return "", None
