"""Create once, whole or not at all, and nothing by merely looking."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.storage import Outcome, Storage, normal_url, open_storage, parquet_bytes
from draftmill.errors import DatasetError, RecipeError

ROUNDS = 60


def test_construction_and_reading_create_nothing(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "none"))
    assert storage.list("shards") == []
    assert not storage.exists("manifests/00000001.json")
    with pytest.raises(FileNotFoundError):
        storage.read("x")
    with pytest.raises(FileNotFoundError):
        storage.read_table("x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_the_first_content_stays(storage: Storage) -> None:
    assert storage.create("a/b/c.bin", b"first") is Outcome.CREATED
    assert storage.create("a/b/c.bin", b"second!") is Outcome.EXISTS
    assert storage.read("a/b/c.bin") == b"first"
    assert storage.size("a/b/c.bin") == 5
    assert storage.list("a") == ["a/b/c.bin"]


def test_a_listing_is_of_that_folder_only(storage: Storage) -> None:
    for path in ("a/1", "ab/1", "a/b/2"):
        storage.create(path, b"")
    assert storage.list("a") == ["a/1", "a/b/2"]
    assert storage.list("") == ["a/1", "a/b/2", "ab/1"]


def test_remove_is_idempotent(storage: Storage) -> None:
    storage.create("a/b", b"1")
    storage.remove("a/b")
    storage.remove("a/b")
    assert storage.list("a") == []


def test_temporary_files_are_invisible_and_gone(storage: Storage, tmp_path: Path) -> None:
    storage.create("f/a", b"1")
    assert os.listdir(tmp_path / "dataset" / "f") == ["a"]
    (tmp_path / "dataset" / "f" / ".left.tmp").write_bytes(b"half")
    assert storage.list("f") == ["f/a"]


def test_of_many_threads_one_creates(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(ROUNDS):
            path = f"m/{number}"
            contents = [f"writer {writer}".encode() for writer in range(8)]
            outcomes = list(pool.map(lambda data, path=path: storage.create(path, data), contents))
            assert outcomes.count(Outcome.CREATED) == 1
            assert storage.read(path) == contents[outcomes.index(Outcome.CREATED)]


def _write_all(url: str, name: str, barrier: Any, results: Any) -> None:
    storage = Storage(url)
    for number in range(ROUNDS):
        barrier.wait(30)
        if storage.create(f"m/{number}", name.encode()) is Outcome.CREATED:
            results.put((number, name))
    results.put(None)


def test_of_two_processes_one_creates(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    storage = open_storage(str(tmp_path / "d"))
    writers = [
        context.Process(target=_write_all, args=(storage.url, name, barrier, results)) for name in ("one", "two")
    ]
    for writer in writers:
        writer.start()
    wins: list[tuple[int, str]] = []
    ended = 0
    while ended < len(writers):
        item = results.get(timeout=60)
        ended, wins = (ended + 1, wins) if item is None else (ended, [*wins, item])
    for writer in writers:
        writer.join(30)
    assert sorted(number for number, _ in wins) == list(range(ROUNDS))
    assert all(storage.read(f"m/{number}") == name.encode() for number, name in wins)


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


def test_a_damaged_object_of_the_same_name_is_not_replaced(
    storage: Storage, tmp_path: Path, stored_rows: Callable[..., pa.Table]
) -> None:
    table = stored_rows({"key": "a"})
    ref = storage.put_table("shards", table)
    (tmp_path / "dataset" / ref.path).write_bytes(b"short")
    with pytest.raises(DatasetError, match=ref.path):
        storage.put_table("shards", table)
    with pytest.raises(DatasetError, match=ref.path):
        storage.read_table(ref.path)
    assert storage.read(ref.path) == b"short"


def test_what_the_disk_refuses_is_a_dataset_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetError) as caught:
        open_storage(str(tmp_path / "file" / "dataset")).create("a", b"1")
    assert "cannot write" in caught.value.what


@pytest.mark.parametrize("path", ["../outside", "a/../../b", "/etc/passwd"])
def test_no_path_leaves_the_dataset(storage: Storage, path: str) -> None:
    with pytest.raises(DatasetError):
        storage.create(path, b"1")


def test_urls() -> None:
    assert normal_url("s3://bucket/a/") == "s3://bucket/a"
    assert normal_url("file:///x/y/") == normal_url("/x/y") == "/x/y"
    for wrong in ("gs://bucket/a", "s3://", "http://host/a"):
        with pytest.raises(RecipeError):
            normal_url(wrong)
