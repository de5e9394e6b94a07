"""A folder in particular: nothing by merely looking, no temporary file seen, one winner among processes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.storage import Outcome, Storage, open_storage
from draftmill.errors import DatasetError

ROUNDS = 60


def test_construction_and_reading_create_nothing(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "none"))
    storage.check()
    storage.check_writing()
    assert storage.list("shards") == []
    with pytest.raises(FileNotFoundError):
        storage.read("x")
    with storage.exclusive():
        pass
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_are_invisible_and_gone(storage: Storage, tmp_path: Path) -> None:
    storage.create("f/a", b"1")
    storage.replace("f/a", b"2")
    assert os.listdir(tmp_path / "dataset" / "f") == ["a"]
    (tmp_path / "dataset" / "f" / ".left.tmp").write_bytes(b"half")
    assert storage.list("f") == ["f/a"]


def test_what_is_open_keeps_its_content_while_it_is_replaced(storage: Storage, tmp_path: Path) -> None:
    storage.replace("card", b"one")
    with (tmp_path / "dataset" / "card").open("rb") as reader:
        storage.replace("card", b"another")
        assert reader.read() == b"one"


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


def test_what_the_disk_refuses_is_a_dataset_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    storage = open_storage(str(tmp_path / "file" / "dataset"))
    for refused in (storage.create, storage.replace):
        with pytest.raises(DatasetError) as caught:
            refused("a", b"1")
        assert "cannot write" in caught.value.what


@pytest.mark.parametrize("write", ["create", "replace"])
@pytest.mark.parametrize("place", ["/proc/no-such-process/dataset", "a link to nowhere", "too long"])
def test_a_folder_that_cannot_be_made(place: str, write: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    place = {"a link to nowhere": str(tmp_path / "link"), "too long": str(tmp_path / ("x" * 300))}.get(place, place)
    with pytest.raises(DatasetError) as caught:
        getattr(open_storage(place), write)("shards/a", b"1")
    assert "cannot write" in caught.value.what
    assert place in str(caught.value)
    assert "correct the path" in caught.value.remedy


@pytest.mark.parametrize("write", ["create", "replace"])
def test_a_folder_that_is_removed_while_it_is_written(
    write: str, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "fsync", gone)
    with pytest.raises(DatasetError, match="cannot write"):
        getattr(storage, write)("shards/a", b"1")
    assert os.listdir(tmp_path / "dataset") in ([], ["shards"])
