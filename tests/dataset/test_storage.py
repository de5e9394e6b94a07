"""Create once, whole or not at all, and nothing by merely looking: the same in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.storage import Outcome, Storage, open_storage, parquet_bytes
from draftmill.errors import DatasetError

ROUNDS = {"folder": 60, "prefix": 2}
"""SeaweedFS has those who wait for a name look again every second."""

CLOCKS_APART = timedelta(seconds=10)


@pytest.fixture(params=["folder", "prefix", "whole bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return open_storage(str(tmp_path / "dataset"))
    bucket: str = request.getfixturevalue("bucket")
    return open_storage(bucket if request.param == "whole bucket" else f"{bucket}/kimi k2+ß/data")


def test_a_prefix_that_is_not_there_is_an_empty_dataset(storage: Storage) -> None:
    storage.check()
    assert storage.list("shards") == []
    assert storage.list("") == []
    assert not storage.exists("manifests/00000001.json")
    for ask in (storage.read, storage.size, storage.read_table):
        with pytest.raises(FileNotFoundError):
            ask("x.parquet")


def test_the_first_content_stays(storage: Storage) -> None:
    assert storage.create("a/b/c.bin", b"first") is Outcome.CREATED
    assert storage.create("a/b/c.bin", b"second!") is Outcome.EXISTS
    assert storage.create("a/b/c.bin", b"first") is Outcome.EXISTS
    assert storage.read("a/b/c.bin") == b"first"
    assert storage.size("a/b/c.bin") == 5
    assert storage.list("a") == ["a/b/c.bin"]


def test_an_empty_object_is_one(storage: Storage) -> None:
    assert storage.create("a", b"") is Outcome.CREATED
    assert (storage.read("a"), storage.size("a"), storage.exists("a")) == (b"", 0, True)


def test_a_name_below_an_object_is_not_there(storage: Storage) -> None:
    storage.create("a", b"1")
    assert storage.list("a") == []
    assert not storage.exists("b")


def test_a_folder_is_no_object(storage: Storage) -> None:
    storage.create("a/b", b"1")
    assert storage.list("") == ["a/b"]
    assert storage.list("a/b") == []


def test_what_is_derived_may_be_replaced(storage: Storage) -> None:
    storage.replace("reports/1.html", b"one")
    storage.replace("reports/1.html", b"another")
    assert storage.read("reports/1.html") == b"another"
    assert storage.list("") == ["reports/1.html"]


def test_a_listing_is_of_that_folder_only(storage: Storage) -> None:
    for path in ("a/1", "ab/1", "a/b/2"):
        storage.create(path, b"")
    assert storage.list("a") == ["a/1", "a/b/2"]
    assert storage.list("") == ["a/1", "a/b/2", "ab/1"]


def test_a_listing_is_never_from_memory(storage: Storage) -> None:
    other = open_storage(storage.url)
    assert storage.list("a") == other.list("a") == []
    other.create("a/1", b"")
    assert storage.list("a") == ["a/1"]
    other.remove("a/1")
    assert storage.list("a") == []


def test_entries_say_how_large_and_when(storage: Storage) -> None:
    storage.create("a/2", b"22")
    storage.create("a/1", b"1")
    entries = storage.entries("a")
    assert [(entry.path, entry.bytes) for entry in entries] == [("a/1", 1), ("a/2", 2)]
    assert all(entry.modified.tzinfo is UTC for entry in entries)
    assert all(abs(entry.modified - datetime.now(UTC)) < CLOCKS_APART for entry in entries)


def test_hidden_objects_are_in_no_listing(storage: Storage) -> None:
    storage.create("a/.hidden", b"1")
    storage.create("a/shown", b"1")
    assert storage.list("") == ["a/shown"]
    assert storage.exists("a/.hidden")


@pytest.mark.parametrize("storage", ["folder", "prefix"], indirect=True)
def test_a_listing_has_all_its_pages(storage: Storage) -> None:
    number = 1001 if storage.url.startswith("s3://") else 3
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: storage.create(f"a/{n:04}", b""), range(number)))
    assert storage.list("a") == [f"a/{n:04}" for n in range(number)]


def test_remove_is_idempotent(storage: Storage) -> None:
    storage.create("a/b", b"1")
    storage.remove("a/b")
    storage.remove("a/b")
    assert storage.list("a") == []
    assert storage.create("a/b", b"2") is Outcome.CREATED


@pytest.mark.parametrize("storage", ["folder", "prefix"], indirect=True)
def test_of_many_threads_one_creates(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(ROUNDS["prefix" if storage.url.startswith("s3://") else "folder"]):
            path = f"m/{number}"
            contents = [f"writer {writer}".encode() for writer in range(8)]
            outcomes = list(pool.map(lambda data, path=path: storage.create(path, data), contents))
            assert outcomes.count(Outcome.CREATED) == 1
            assert storage.read(path) == contents[outcomes.index(Outcome.CREATED)]


def test_equal_tables_are_one_object(storage: Storage, stored_rows: Callable[..., pa.Table]) -> None:
    table = stored_rows({"key": "a"}, {"key": "b"}, {"key": "c"})
    pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)]).replace_schema_metadata({"who": "cares"})
    assert parquet_bytes(table) == parquet_bytes(pieces)
    ref = storage.put_table("shards", table)
    assert storage.put_table("shards", pieces) == ref
    assert storage.list("shards") == [ref.path]
    assert (ref.rows, ref.bytes) == (3, storage.size(ref.path))
    assert storage.read_table(ref.path).equals(table)
    assert storage.read_table(ref.path, ["row_key"]).column_names == ["row_key"]
    assert storage.read_parquet(ref.path, lambda file: file.metadata.num_rows) == 3


def test_a_damaged_object_of_the_same_name_is_not_replaced(
    storage: Storage, stored_rows: Callable[..., pa.Table]
) -> None:
    table = stored_rows({"key": "a"})
    ref = storage.put_table("shards", table)
    storage.replace(ref.path, b"short")
    with pytest.raises(DatasetError, match=ref.path):
        storage.put_table("shards", table)
    with pytest.raises(DatasetError, match=ref.path):
        storage.read_table(ref.path)
    assert storage.read(ref.path) == b"short"


def test_what_a_reader_raises_is_its_own(storage: Storage, stored_rows: Callable[..., pa.Table]) -> None:
    ref = storage.put_table("shards", stored_rows({"key": "a"}))

    def wrong(file: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        storage.read_parquet(ref.path, wrong)


@pytest.mark.parametrize("path", ["../outside", "a/../../b", "/etc/passwd"])
def test_no_path_leaves_the_dataset(storage: Storage, path: str) -> None:
    with pytest.raises(DatasetError):
        storage.create(path, b"1")
