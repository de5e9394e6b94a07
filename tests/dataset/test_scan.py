"""Columns of many objects: in order, only those asked for, and each fault with its object's name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from draftmill.dataset.scan import OBJECTS_AT_ONCE, tables, tables_there
from draftmill.dataset.storage import Storage, open_storage
from draftmill.errors import DatasetError

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int32())])


def put(storage: Storage, name: str, rows: int) -> str:
    values = {"ids": [[1, 2]] * rows, "number": list(range(rows)), "key": [f"{name}{n}" for n in range(rows)]}
    table = pa.table(values, schema=pa.schema([("ids", pa.list_(pa.int32())), *SCHEMA]))
    return storage.put_table("shards", table).path


def test_the_columns_of_each_object_in_order(storage: Storage) -> None:
    sizes = [3, 0, 2000, 1, *range(20), 0]
    paths = [put(storage, f"{place} ", rows) for place, rows in enumerate(sizes)]
    found = list(tables(storage, paths, SCHEMA))
    assert [table.schema for table in found] == [SCHEMA] * len(sizes)
    assert [table["key"].to_pylist() for table in found] == [
        [f"{place} {n}" for n in range(rows)] for place, rows in enumerate(sizes)
    ]
    assert [table["number"].to_pylist() for table in found] == [list(range(rows)) for rows in sizes]


def test_the_same_on_s3(bucket: str) -> None:
    storage = open_storage(f"{bucket}/dataset")
    paths = [put(storage, f"{place} ", 1500) for place in range(3)]
    found = pa.concat_tables(tables(storage, paths, SCHEMA))
    assert found["key"].to_pylist() == [f"{place} {n}" for place in range(3) for n in range(1500)]
    with pytest.raises(FileNotFoundError):
        list(tables(storage, [*paths, "shards/gone.parquet"], SCHEMA))


def test_no_object_at_all(storage: Storage) -> None:
    assert list(tables(storage, [], SCHEMA)) == []


def test_a_column_that_an_object_lacks_is_left_out(storage: Storage) -> None:
    path = storage.put_table("shards", pa.table({"key": ["a"]})).path
    assert [table.column_names for table in tables(storage, [path], SCHEMA)] == [["key"]]


def test_a_fault_comes_in_its_objects_turn_and_with_its_name(storage: Storage, tmp_path: Path) -> None:
    good = put(storage, "a", 1)
    with closing(tables(storage, [good, "shards/gone.parquet", good], SCHEMA)) as found:
        assert next(found).num_rows == 1
        with pytest.raises(FileNotFoundError):
            next(found)
    (tmp_path / "dataset" / "shards" / "bad.parquet").write_text("not Parquet")
    with pytest.raises(DatasetError, match=r"shards/bad\.parquet is no readable Parquet file"):
        list(tables(storage, [good, "shards/bad.parquet"], SCHEMA))


def test_what_is_read_ahead_is_bounded(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [put(storage, str(n), n + 1) for n in range(4 * OBJECTS_AT_ONCE)]
    opened: list[str] = []
    real = Storage.read_open

    def counting(self: Storage, path: str, read: object) -> pa.Table:
        opened.append(path)
        return real(self, path, read)  # type: ignore[arg-type]

    monkeypatch.setattr(Storage, "read_open", counting)
    with closing(tables(storage, paths, SCHEMA)) as found:
        next(found)
    assert len(opened) <= OBJECTS_AT_ONCE + 1


def test_what_is_gone_is_left_out_where_that_is_asked_for(storage: Storage) -> None:
    paths = [put(storage, f"{place} ", 2) for place in range(2 * OBJECTS_AT_ONCE)]
    gone = {paths[0], paths[5], paths[-1]}
    for path in gone:
        storage.remove(path)
    found = list(tables_there(storage, paths, SCHEMA))
    assert [path for path, _ in found] == [path for path in paths if path not in gone]
    assert [table["key"].to_pylist() for _, table in found] == [
        [f"{place} 0", f"{place} 1"] for place, path in enumerate(paths) if path not in gone
    ]
