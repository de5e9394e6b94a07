"""Packed files as they come: whole, glued together, cut, damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.prompts.compression import Damaged, unpacked, without_packing


def zstd(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, "zstd", asbytes=True)
    return packed


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
LINES = b"".join(b'{"n": %d}\n' % (n * 7919) for n in range(20_000))
each_packing = pytest.mark.parametrize("packing", PACKERS)


def unpack(content: bytes) -> bytes:
    return unpacked(io.BufferedReader(io.BytesIO(content))).read()  # type: ignore[arg-type]


@each_packing
def test_all_members_are_read(packing):
    pack = PACKERS[packing]
    assert unpack(pack(LINES) + pack(b"") + pack(b"more\n")) == LINES + b"more\n"


@each_packing
def test_lines_come_one_by_one(packing):
    stream = unpacked(io.BufferedReader(io.BytesIO(PACKERS[packing](LINES))))  # type: ignore[arg-type]
    assert list(stream) == LINES.splitlines(keepends=True)


@each_packing
@pytest.mark.parametrize("lost", [1, 3, 11, 20_000])
def test_what_is_cut_says_so_and_where(packing, lost):
    pack = PACKERS[packing]
    cut = (pack(b"first\n") + pack(LINES))[:-lost]
    with pytest.raises(Damaged) as caught:
        unpack(cut)
    assert (caught.value.packing, caught.value.cut, caught.value.byte) == (packing, True, len(cut))


@each_packing
def test_what_is_damaged_is_not_called_cut(packing):
    whole = bytearray(PACKERS[packing](LINES))
    # Many bytes: zstd as Arrow writes it has no checksum, so one wrong letter would pass.
    whole[20:] = b"\xff" * len(whole[20:])
    with pytest.raises(Damaged) as caught:
        unpack(bytes(whole))
    assert caught.value.cut is False


@each_packing
def test_what_follows_the_data_is_never_ignored(packing):
    with pytest.raises(Damaged):
        unpack(PACKERS[packing](LINES) + b"rows that nobody packed\n" * 10)


def test_frames_to_be_skipped_are_skipped():
    skipped = struct.pack("<II", 0x184D2A50, 4) + b"abcd"
    assert unpack(skipped + zstd(b"a\n") + skipped + zstd(b"b\n")) == b"a\nb\n"


def test_the_zeros_that_xz_pads_with_are_no_data():
    assert unpack(lzma.compress(b"a\n") + b"\0" * 8 + lzma.compress(b"b\n") + b"\0" * 4) == b"a\nb\n"


def test_faults_of_the_source_stay_what_they_are():
    class Broken(io.BytesIO):
        def readinto1(self, buffer):
            if self.tell() > 1000:
                raise ConnectionResetError("gone")
            return super().readinto1(memoryview(buffer)[:900])

    for pack in PACKERS.values():
        stream = unpacked(io.BufferedReader(Raw(Broken(pack(LINES)))))
        with pytest.raises(ConnectionResetError):
            stream.read()


class Raw(io.RawIOBase):
    def __init__(self, inner):
        self._inner = inner

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._inner.readinto1(buffer)


@given(content=st.binary(max_size=200))
def test_bytes_that_are_not_packed_stay_as_they_are_and_nothing_else_is_raised(content):
    try:
        plain = unpack(content)
    except Damaged:
        return
    assert plain == content or content[:1] in b"\x1f\x28BP\xfd"


@given(members=st.lists(st.tuples(st.sampled_from(sorted(PACKERS)), st.binary(max_size=300)), min_size=1, max_size=4))
def test_members_add_up(members):
    packing = members[0][0]
    packed = b"".join(PACKERS[packing](content) for _, content in members)
    assert unpack(packed) == b"".join(content for _, content in members)


def test_endings_of_packing_are_left_off():
    assert without_packing("A/Part.JSONL.gz") == "a/part.jsonl"
    assert without_packing("x.csv.zst") == "x.csv"
    assert without_packing("x.gzip.csv") == "x.gzip.csv"
