"""One byte, in a manifest or in any object that one hashes: found, and named. What nothing hashes is listed as that."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from draftmill.dataset.card import write_card
from draftmill.dataset.compact import compact
from draftmill.dataset.create_only import LOCK, PROBE
from draftmill.dataset.manifest import newest
from draftmill.dataset.rejected import rejections_table
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import requests_table
from draftmill.dataset.verify import Fault, verify
from draftmill.dataset.verify_chain import manifests
from draftmill.errors import DatasetError
from draftmill.records import Reason, Rejection

Rows = Callable[..., pa.Table]


def build(storage: Storage, rows: Rows) -> Storage:
    """Four versions: two nights, one that drops a row, one that compacts."""
    rejected = [storage.put_table("rejected", rejections_table([Rejection(Reason.DUPLICATE, "of x", "p", "s", 3)]))]
    first = [storage.put_table("shards", rows({"key": "a"}, {"key": "b", "finish": "length"}))]
    bad = [storage.put_table("quarantine", rows({"key": "x"}, reason="degenerate"))]
    seal(storage, Change(good=first, bad=bad, rejected=rejected, recipe={"dataset": "größe"}))
    seal(storage, Change(good=[storage.put_table("shards", rows({"key": "c"}))], rejected=rejected))
    key = rows({"key": "a"})["row_key"][0].as_py()
    seal(storage, Change(dropped=requests_table([(key, 0)]), rejected=rejected))
    compact(storage)
    return storage


@pytest.fixture
def sealed(storage: Storage, stored_rows: Rows) -> Storage:
    return build(storage, stored_rows)


def hashed(storage: Storage) -> list[str]:
    """Every file that is a manifest or that one lists."""
    paths = [entry.path for entry in storage.entries("")]
    assert {path.split("/")[0] for path in paths} == {"manifests", "shards", "quarantine", "rejected"}
    return paths


def positions(data: bytes) -> list[int]:
    return sorted({0, 1, 7, len(data) // 3, len(data) // 2, len(data) - 5, len(data) - 1})


def damages(data: bytes) -> Iterator[bytes]:
    for position in positions(data):
        for bit in (0x01, 0x20, 0x80):
            yield data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]
    yield from (data[:-1], data[: len(data) // 2], b"", data + b"\n", data[:-1] + b" ")


def test_a_sound_dataset(sealed: Storage) -> None:
    found = verify(sealed, judge=lambda table: [None] * table.num_rows)
    assert (found.ok, found.rows, found.not_verified) == (True, 2, [])
    assert len(hashed(sealed)) == 4 + 4 + 1 + 1


@pytest.mark.parametrize("index", range(10))
def test_every_file_and_every_damage(sealed: Storage, index: int) -> None:
    path = hashed(sealed)[index]
    file = Path(sealed.url) / path
    whole = file.read_bytes()
    for damaged in damages(whole):
        file.write_bytes(damaged)
        assert {fault.file for fault in verify(sealed).faults} == {path}, (path, damaged[:40])
    file.write_bytes(whole)
    assert verify(sealed).ok


def test_any_byte_of_a_manifest(sealed: Storage) -> None:
    path = "manifests/00000002.json"
    file = Path(sealed.url) / path
    whole = file.read_bytes()
    assert "größe".encode() in (Path(sealed.url) / "manifests/00000001.json").read_bytes()
    for position in (*range(40), *range(40, len(whole), 13), len(whole) - 1):
        byte = whole[position]
        spaces = [other for other in b" \t\r\n" if other != byte] if byte in b" \n" else []
        for other in (byte ^ 1, *spaces):
            file.write_bytes(whole[:position] + bytes([other]) + whole[position + 1 :])
            said: list[str] = []
            list(manifests(sealed, lambda file, _, said=said: said.append(file)))  # type: ignore[misc]
            assert said == [path], (position, chr(byte), chr(other))


def test_a_removed_file(sealed: Storage) -> None:
    *_, last = paths = [path for path in hashed(sealed) if path.startswith("manifests/")]
    current = {ref.path for ref in newest(sealed).objects}  # type: ignore[union-attr]
    for path in hashed(sealed):
        file = Path(sealed.url) / path
        whole = file.read_bytes()
        file.unlink()
        found = verify(sealed)
        if path in current:
            assert found.faults == [Fault(path, "missing")]
        elif path in paths and path != last:
            assert {fault.file for fault in found.faults} == {path}
        elif path != last:  # what only an older version lists may be gone, and is said to be
            assert found.ok
            assert any("1 objects that only older manifests list: gone" in text for text in found.not_verified)
        file.write_bytes(whole)


def test_swapped_contents(sealed: Storage) -> None:
    paths = hashed(sealed)
    for one, two in itertools.pairwise(paths):
        files = [Path(sealed.url) / path for path in (one, two)]
        contents = [file.read_bytes() for file in files]
        for file, content in zip(files, reversed(contents), strict=True):
            file.write_bytes(content)
        assert {fault.file for fault in verify(sealed).faults} == {one, two}
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)


def test_two_damaged_manifests_are_both_named(sealed: Storage) -> None:
    for version in (1, 3):
        (Path(sealed.url) / f"manifests/{version:08d}.json").write_bytes(b"{}")
    faults = [fault.file for fault in verify(sealed).faults]
    assert faults == ["manifests/00000003.json", "manifests/00000001.json"]


def test_what_nothing_hashes_is_listed(sealed: Storage, stored_rows: Rows) -> None:
    write_card(sealed)
    for folder in ("prompts", "verdicts", "completions", "shards"):
        sealed.put_table(folder, stored_rows({"key": folder}))
    for path in (
        PROBE,
        LOCK,
        "reports/1.html",
        "reports/2.html",
        "notes.txt",
        "shards/.x.tmp",
        "manifests/draft.json",
        "own/a/b",
    ):
        sealed.create(path, b"x")
    found = verify(sealed, judge=lambda table: [None] * table.num_rows)
    assert found.ok
    assert found.not_verified == [
        ".draftmill-create-only: 1 the mark of a storage that lets one writer win",
        "README.md: 1 the card, made anew by each seal",
        "completions/: 1 working objects: completions as they came in",
        "hidden: 1 hidden files: unfinished writes, or another program's",
        "manifests/: 1 files that are no manifest",
        "manifests/.lock: 1 the lock of a commit under way",
        "notes.txt: 1 not draftmill's",
        "own/: 1 not draftmill's",
        "prompts/: 1 working objects: prompts",
        "reports/: 2 reports, made of what is verified",
        "shards/: 1 objects that no manifest lists",
        "verdicts/: 1 working objects: verdicts",
    ]


def test_a_storage_that_refuses_is_a_fault_not_an_exception(sealed: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    path = newest(sealed).shards[0].path  # type: ignore[union-attr]
    real = Storage.read

    def refuse(*_: object) -> bytes:
        raise DatasetError("cannot list", value="403", expected="rights", remedy="ask")

    monkeypatch.setattr(Storage, "read", lambda self, name: refuse() if name == path else real(self, name))
    monkeypatch.setattr(Storage, "entries", lambda self, folder, hidden=False: refuse() if hidden else [])
    found = verify(sealed)
    assert found.faults == [Fault(path, "cannot list (got 403, expected rights)")]
    assert found.not_verified[-1] == "files that no manifest lists: cannot list (got 403, expected rights)"


def test_on_s3(bucket: str, stored_rows: Rows) -> None:
    there = build(open_storage(f"{bucket}/data"), stored_rows)
    assert verify(there).ok
    for path in hashed(there):
        whole = there.read(path)
        there.replace(path, whole[:-7] + bytes([whole[-7] ^ 4]) + whole[-6:])
        assert {fault.file for fault in verify(there).faults} == {path}
        there.replace(path, whole)
    path = newest(there).shards[0].path  # type: ignore[union-attr]
    there.remove(path)
    assert verify(there).faults == [Fault(path, "missing")]
