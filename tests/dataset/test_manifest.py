"""A manifest is what was sealed, or it is refused by name."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.manifest import DataRef, Made, Manifest, manifest_path, newest, read_manifest, versions
from draftmill.dataset.schema import FORMAT
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError
from draftmill.identity import digest


def build(version: int = 1, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "version": version,
        "parent": None,
        "seal_id": "5ea1",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "shards": [DataRef(path="shards/x.parquet", bytes=3, rows=1, sha256="x", made=[Made(manifest=1, rows=1)])],
        "quarantine": [],
        "rejected": [],
        "consumed": [],
        "recipe": {"dataset": "Öl", "temperature": 0.1},
        "identity": {},
        "structures": {},
        "provenance": {},
        "counts": {"good_rows": 1},
        "failed": [],
    }
    return Manifest(**{**fields, **changes}).hashed()


def put(storage: Storage, manifest: Manifest, version: int | None = None) -> None:
    storage.create(manifest_path(version or manifest.version), manifest.to_bytes())


def test_round_trip_and_newest(storage: Storage) -> None:
    assert newest(storage) is None
    for version in (1, 2, 10):
        put(storage, build(version))
    storage.create("manifests/notes.json", b"{}")
    assert versions(storage) == [1, 2, 10]
    found = newest(storage)
    assert found == build(10)
    assert read_manifest(storage, 2) == build(2)


class Stale(Storage):
    """Its listings are those of an earlier time: `shown` manifests and no more. Counts what it is asked."""

    def __init__(self, url: str, shown: int) -> None:
        super().__init__(url)
        self.shown, self.listings, self.looks, self.reads = shown, 0, 0, 0

    def list(self, folder: str) -> list[str]:
        self.listings += 1
        return super().list(folder)[: self.shown]

    def size(self, path: str) -> int:
        self.looks += 1
        return super().size(path)

    def read(self, path: str) -> bytes:
        self.reads += 1
        return super().read(path)


@pytest.mark.parametrize("shown", [0, 1, 35, 36, 37])
def test_a_stale_listing_costs_only_looks(storage: Storage, shown: int) -> None:
    for version in range(1, 38):
        put(storage, build(version))
    stale = Stale(storage.url, shown)
    assert newest(stale) == build(37)
    # One for each version that the listing lacks, and one for the version that does not exist.
    assert (stale.listings, stale.looks, stale.reads) == (1, 37 - shown + 1, 1)


def test_a_dataset_without_manifests_costs_one_look(storage: Storage) -> None:
    nothing = Stale(storage.url, 0)
    assert newest(nothing) is None
    assert (nothing.listings, nothing.looks, nothing.reads) == (1, 1, 0)


def test_the_hash_covers_every_field() -> None:
    assert build().sha256 != build(seal_id="other").sha256
    assert build().sha256 != build(counts={"good_rows": 2}).sha256


def _refused(storage: Storage, tmp_path: Path, content: bytes, version: int = 1) -> str:
    path = tmp_path / "dataset" / manifest_path(version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(DatasetError) as caught:
        newest(storage)
    assert manifest_path(version) in caught.value.what
    return caught.value.what


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'{"a": "\\ud800"}'])
def test_no_json(storage: Storage, tmp_path: Path, content: bytes) -> None:
    assert "not JSON" in _refused(storage, tmp_path, content)


def test_an_edit_shows(storage: Storage, tmp_path: Path) -> None:
    edited = build().to_bytes().replace(b'"rows": 1', b'"rows": 2')
    assert "changed after" in _refused(storage, tmp_path, edited)


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b"{}"])
def test_json_that_is_no_manifest(storage: Storage, tmp_path: Path, content: bytes) -> None:
    assert "changed after" in _refused(storage, tmp_path, content)


def test_another_version_than_its_name(storage: Storage, tmp_path: Path) -> None:
    assert "version" in _refused(storage, tmp_path, build(2).to_bytes(), version=1)


def test_another_format(storage: Storage, tmp_path: Path) -> None:
    assert "format" in _refused(storage, tmp_path, build(format=99).to_bytes())


@pytest.mark.parametrize("format_", [2, 99, None])
def test_a_manifest_of_another_format_is_sound_and_stays(storage: Storage, format_: int | None) -> None:
    data = {key: value for key, value in json.loads(build().to_bytes()).items() if key != "sha256"} | {
        "format": format_
    }
    storage.create(manifest_path(1), json.dumps(data | {"sha256": digest(data)}).encode())
    with pytest.raises(DatasetError, match="of another format") as caught:
        newest(storage)
    assert "do not remove it; use the draftmill that made it" in caught.value.remedy
    assert "away" not in caught.value.remedy


def test_of_damaged_manifests_only_the_newest_may_be_moved_away(storage: Storage) -> None:
    """An older one that is missing cuts the chain, and one that is not there cannot be moved."""
    storage.create(manifest_path(1), b"{")
    with pytest.raises(DatasetError) as damaged:
        newest(storage)
    with pytest.raises(DatasetError) as missing:
        read_manifest(storage, 2)
    assert "only if it is the newest" in damaged.value.remedy
    assert "away" not in missing.value.remedy


def test_unknown_keys_are_refused_even_with_a_right_hash(storage: Storage, tmp_path: Path) -> None:
    data = json.loads(build().to_bytes())
    data["extra"] = 1
    del data["sha256"]
    data["sha256"] = digest(data)
    assert "not a manifest" in _refused(storage, tmp_path, json.dumps(data).encode())


def test_a_missing_version_names_the_known_ones(storage: Storage) -> None:
    put(storage, build(1))
    with pytest.raises(DatasetError) as caught:
        read_manifest(storage, 7)
    assert caught.value.expected == "one of: 1"
