"""Small objects into large ones: the same rows, the same order, the same origins; and nobody's rows are lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftmill.dataset import compact as module
from draftmill.dataset.compact import compact, groups
from draftmill.dataset.manifest import DataRef, Made, Manifest, newest
from draftmill.dataset.origin import row_versions
from draftmill.dataset.parquet import ROW_GROUP_ROWS, parquet_bytes
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import requests_table
from draftmill.dataset.verify import verify
from draftmill.errors import DatasetError, RecipeError

Rows = Callable[..., pa.Table]


def rows_of(storage: Storage, manifest: Manifest | None, name: str = "shards") -> list[dict[str, object]]:
    assert manifest is not None
    return [row for ref in getattr(manifest, name) for row in storage.read_table(ref.path).to_pylist()]


def origins(manifest: Manifest | None) -> list[int]:
    assert manifest is not None
    return [version for ref in manifest.shards for version in row_versions(ref).tolist()]


@pytest.fixture
def seal_rows(storage: Storage, stored_rows: Rows) -> Callable[..., Manifest]:
    """Seals a night: each name becomes a shard of two rows; `bad`: quarantine objects of one row each."""

    def make(*names: str, bad: tuple[str, ...] = (), into: Storage = storage) -> Manifest:
        good = [into.put_table("shards", stored_rows({"key": f"{name}1"}, {"key": f"{name}2"})) for name in names]
        wrong = [into.put_table("quarantine", stored_rows({"key": name}, reason="degenerate")) for name in bad]
        return seal(into, Change(good=good, bad=wrong, recipe={"on_truncated": "keep"}, structures={"x": {}})).manifest

    return make


def test_same_rows_in_the_same_order_with_their_origins(storage: Storage, seal_rows: Callable[..., Manifest]) -> None:
    seal_rows("a", "b", bad=("x",))
    before = seal_rows("c", bad=("y",))
    compacted = compact(storage)
    after = compacted.manifest
    assert after is not None
    assert after == newest(storage)
    assert (compacted.objects_before, compacted.objects_after) == (5, 2)
    for name in ("shards", "quarantine"):
        assert rows_of(storage, after, name) == rows_of(storage, before, name)
    assert origins(after) == origins(before) == [1, 1, 1, 1, 2, 2]
    assert after.shards[0].made == [Made(manifest=1, rows=4), Made(manifest=2, rows=2)]
    same = ("rejected", "consumed", "recipe", "identity", "structures", "counts", "statistics", "failed", "format")
    assert all(getattr(after, name) == getattr(before, name) for name in same)
    assert (after.version, after.parent and after.parent.version) == (3, 2)
    assert (verify(storage).ok, verify(storage).rows) == (True, 6)


def test_nothing_to_do_makes_no_manifest(storage: Storage, seal_rows: Callable[..., Manifest]) -> None:
    seal_rows("a", bad=("x",))
    compacted = compact(storage)
    assert (compacted.manifest, compacted.objects_before, compacted.objects_after) == (None, 2, 2)
    seal_rows("b")
    assert compact(storage).manifest is not None
    assert compact(storage).manifest is None
    assert newest(storage).version == 3  # type: ignore[union-attr]


def test_no_dataset(storage: Storage) -> None:
    with pytest.raises(RecipeError):
        compact(storage)


def test_a_compacted_object_has_the_bytes_of_one_that_was_written_whole(storage: Storage, stored_rows: Rows) -> None:
    tables = [stored_rows(*({"key": f"{part} {n}"} for n in range(900))) for part in range(3)]
    seal(storage, Change(good=[storage.put_table("shards", table) for table in tables]))
    manifest = compact(storage).manifest
    assert manifest is not None
    (ref,) = manifest.shards
    whole = pa.concat_tables(tables)
    assert storage.read(ref.path) == parquet_bytes(whole)
    metadata = pq.ParquetFile(pa.BufferReader(storage.read(ref.path))).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [
        ROW_GROUP_ROWS,
        ROW_GROUP_ROWS,
        2700 - 2 * ROW_GROUP_ROWS,
    ]


def test_no_object_holds_more_ids_than_the_target(
    storage: Storage, stored_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TARGET_IDS", ROW_GROUP_ROWS * 6)  # rows of the fixture have six ids
    tables = [stored_rows(*({"key": f"{part} {n}"} for n in range(900))) for part in range(3)]
    before = seal(storage, Change(good=[storage.put_table("shards", table) for table in tables])).manifest
    after = compact(storage).manifest
    assert after is not None
    assert [ref.rows for ref in after.shards] == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 2700 - 2 * ROW_GROUP_ROWS]
    assert rows_of(storage, after) == rows_of(storage, before)
    assert origins(after) == [1] * 2700
    assert compact(storage).manifest is None


def refs(*sizes: int) -> list[DataRef]:
    return [
        DataRef(path=str(n), bytes=size, rows=1, sha256="", made=[Made(manifest=1, rows=1)])
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "grouped"),
    [
        ([], []),
        ([10, 10, 10], [[10, 10, 10]]),
        ([40, 40, 40, 40], [[40, 40], [40, 40]]),
        ([50, 10, 10, 90, 10], [[50], [10, 10], [90], [10]]),
        ([10, 200, 10, 10], [[10], [200], [10, 10]]),
        ([49, 49, 2, 49], [[49, 49, 2], [49]]),
    ],
)
def test_groups(sizes: list[int], grouped: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TARGET_BYTES", 100)
    assert [[ref.bytes for ref in group] for group in groups(refs(*sizes))] == grouped


def test_a_run_that_seals_meanwhile_keeps_its_rows(
    storage: Storage, seal_rows: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is faster just before our manifest is created; what is written is used again."""
    seal_rows("a", "b")
    joined: list[list[str]] = []
    real, other = module._joined, open_storage(storage.url)

    def slow(storage: Storage, folder: str, found: list[DataRef], schema: pa.Schema) -> list[DataRef]:
        joined.append([ref.path for ref in found])
        result = real(storage, folder, found, schema)
        if len(joined) == 1:
            seal_rows("c", into=other)
        return result

    monkeypatch.setattr(module, "_joined", slow)
    after = compact(storage).manifest
    assert after is not None
    assert (after.version, len(after.shards), len(rows_of(storage, after))) == (3, 1, 6)
    assert origins(after) == [1, 1, 1, 1, 2, 2]
    assert verify(storage).ok
    assert len(joined) == 2


def test_groups_written_for_a_lost_race_are_not_written_again(
    storage: Storage, seal_rows: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = seal_rows("a", "b", "c", "d").shards[0].bytes
    monkeypatch.setattr(module, "TARGET_BYTES", int(2.5 * size))
    joined: list[list[str]] = []
    real, other = module._joined, open_storage(storage.url)

    def slow(storage: Storage, folder: str, found: list[DataRef], schema: pa.Schema) -> list[DataRef]:
        joined.append([ref.path for ref in found])
        if len(joined) == 2:
            seal_rows("e", into=other)
        return real(storage, folder, found, schema)

    monkeypatch.setattr(module, "_joined", slow)
    after = compact(storage).manifest
    assert after is not None
    assert (after.version, len(after.shards), len(rows_of(storage, after))) == (3, 3, 10)
    assert len(joined) == 2


def test_a_run_that_planned_before_and_seals_after(
    storage: Storage, stored_rows: Rows, seal_rows: Callable[..., Manifest], key_of: Callable[[str], str]
) -> None:
    """It names rows by their keys, so that it replaces and drops them wherever they lie now."""
    seal_rows("a", "b", bad=("x",))
    seal_rows("c", bad=("y",))
    compact(storage)
    late = Change(
        good=[storage.put_table("shards", stored_rows({"key": "d"}, {"key": "x", "attempt": 1}))],
        dropped=requests_table([(key_of("a1"), 0)]),
    )
    manifest = seal(storage, late).manifest
    assert manifest.version == 4
    kept = [row["prompt_id"] for row in rows_of(storage, manifest)]
    assert kept == ["a2", "b1", "b2", "c1", "c2", "d", "x"]
    assert [row["prompt_id"] for row in rows_of(storage, manifest, "quarantine")] == ["y"]
    assert origins(manifest) == [1, 1, 1, 2, 2, 4, 4]
    assert verify(storage).ok


def test_damage_is_not_taken_over(storage: Storage, seal_rows: Callable[..., Manifest], tmp_path: Path) -> None:
    path = seal_rows("a", "b").shards[1].path
    file = tmp_path / "dataset" / path
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(DatasetError, match=path):
        compact(storage)
    file.unlink()
    with pytest.raises(DatasetError) as refused:
        compact(storage)
    assert refused.value.value == path
    assert newest(storage).version == 1  # type: ignore[union-attr]


def test_rows_that_differ_are_not_sealed(
    storage: Storage, seal_rows: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_rows("a", "b")
    real = module._tables
    monkeypatch.setattr(module, "_tables", lambda data: (table.slice(0, 3) for table in real(data)))
    with pytest.raises(DatasetError, match="nothing was sealed"):
        compact(storage)
    assert newest(storage).version == 1  # type: ignore[union-attr]


def test_on_s3(bucket: str, stored_rows: Rows, seal_rows: Callable[..., Manifest]) -> None:
    there = open_storage(f"{bucket}/data")
    seal_rows("a", "b", into=there)
    before = seal_rows("c", bad=("x", "y"), into=there)
    after = compact(there).manifest
    assert after is not None
    assert rows_of(there, after) == rows_of(there, before)
    assert (len(after.shards), len(after.quarantine), verify(there).faults) == (1, 1, [])
