"""Every damage is named with its file; none is a traceback."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.manifest import newest
from draftmill.dataset.row_faults import row_faults
from draftmill.dataset.schema import QUARANTINE, REJECTED, SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage
from draftmill.dataset.verify import Fault, verify
from draftmill.identity import digest

Rows = Callable[..., pa.Table]


@pytest.fixture
def sealed(storage: Storage, stored_rows: Rows) -> Storage:
    """Two manifests; the newest lists two shards, one quarantine object, one rejected one."""
    rejected = pa.Table.from_pylist(
        [{"prompt_id": "x", "source": "s", "line": 1, "reason": "prompt_invalid", "detail": ""}], schema=REJECTED
    )
    seal(
        storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}, {"key": "b", "finish": "length"}))])
    )
    seal(
        storage,
        Change(
            good=[storage.put_table("shards", stored_rows({"key": "c"}))],
            bad=[storage.put_table("quarantine", stored_rows({"key": "d"}, reason="degenerate"))],
            rejected=[storage.put_table("rejected", rejected)],
        ),
    )
    return storage


def objects(storage: Storage) -> list[str]:
    manifest = newest(storage)
    assert manifest is not None
    return [ref.path for ref in manifest.objects]


def test_a_sound_dataset(sealed: Storage) -> None:
    found = verify(sealed)
    assert (found.ok, found.rows, found.faults) == (True, 3, [])
    assert found.not_verified == ["the structure of the rows: no judge was given"]
    assert verify(sealed, judge=lambda table: [None] * table.num_rows).not_verified == []


def test_no_dataset(storage: Storage) -> None:
    assert verify(storage).faults == [Fault("manifests/", "there is no manifest")]


@pytest.mark.parametrize("index", range(4))
def test_a_flipped_byte_anywhere_in_an_object(sealed: Storage, tmp_path: Path, index: int) -> None:
    path = objects(sealed)[index]
    file = tmp_path / "dataset" / path
    whole = file.read_bytes()
    for position in {0, 1, len(whole) // 2, len(whole) - 1, *range(5, len(whole), 197)}:
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        file.write_bytes(damaged)
        faults = verify(sealed).faults
        assert [fault.file for fault in faults] == [path]
        assert "SHA-256" in faults[0].fault


@pytest.mark.parametrize("index", range(4))
def test_a_deleted_or_cut_object(sealed: Storage, tmp_path: Path, index: int) -> None:
    path = objects(sealed)[index]
    file = tmp_path / "dataset" / path
    file.write_bytes(file.read_bytes()[:-1])
    assert {fault.file for fault in verify(sealed).faults} == {path}
    file.unlink()
    assert verify(sealed).faults == [Fault(path, "missing")]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_a_manifest_that_is_damaged(sealed: Storage, tmp_path: Path, version: int, damage: bytes | None) -> None:
    path = f"manifests/{version:08d}.json"
    file = tmp_path / "dataset" / path
    file.write_bytes(file.read_bytes().replace(b'"rows": 2', b'"rows": 3') if damage is None else damage)
    assert [fault.file for fault in verify(sealed).faults] == [path]


def _edit(storage: Storage, tmp_path: Path, version: int, **changes: Any) -> str:
    """Edit a manifest and give it a right hash again."""
    path = f"manifests/{version:08d}.json"
    file = tmp_path / "dataset" / path
    data = json.loads(file.read_bytes()) | changes
    del data["sha256"]
    file.write_text(json.dumps({**data, "sha256": digest(data)}, ensure_ascii=False, indent=1) + "\n")
    return path


def test_a_parent_rewritten_with_a_right_hash(sealed: Storage, tmp_path: Path) -> None:
    path = _edit(sealed, tmp_path, 1, recipe={"forged": True})
    assert verify(sealed).faults == [Fault(path, "not the manifest that version 2 was built on")]


def test_a_deleted_parent(sealed: Storage) -> None:
    sealed.remove("manifests/00000001.json")
    assert [fault.file for fault in verify(sealed).faults] == ["manifests/00000001.json"]


def test_a_cut_chain(sealed: Storage, tmp_path: Path) -> None:
    path = _edit(sealed, tmp_path, 2, parent=None)
    assert verify(sealed).faults == [Fault(path, "has no parent, and is not version 1")]


def test_wrong_numbers_with_a_right_hash(sealed: Storage, tmp_path: Path) -> None:
    manifest = newest(sealed)
    assert manifest is not None
    shards = [ref.model_dump() for ref in manifest.shards]
    shards[0]["rows"] = 7
    path = _edit(sealed, tmp_path, 2, shards=shards)
    assert {fault.file for fault in verify(sealed).faults} == {shards[0]["path"], path}
    assert any("7" in fault.fault for fault in verify(sealed).faults)


def test_a_path_that_leaves_the_dataset(sealed: Storage, tmp_path: Path) -> None:
    manifest = newest(sealed)
    assert manifest is not None
    shards = [{**manifest.shards[0].model_dump(), "path": "../elsewhere.parquet"}]
    _edit(sealed, tmp_path, 2, shards=shards)
    assert any(fault.file == "../elsewhere.parquet" for fault in verify(sealed).faults)


def _listed(storage: Storage, tmp_path: Path, name: str, *tables: pa.Table) -> list[str]:
    refs = [storage.put_table(name, table) for table in tables]
    counts: dict[str, Any] = {"good_rows" if name == "shards" else "quarantined_rows": sum(ref.rows for ref in refs)}
    manifest = newest(storage)
    assert manifest is not None
    if name == "shards":
        keys = pa.concat_tables(tables)["attempt"].to_pylist()
        counts["attempts"] = {str(attempt): number for attempt, number in Counter(keys).items()}
    listed = [{**ref.model_dump(), "made": [{"manifest": 2, "rows": ref.rows}]} for ref in refs]
    _edit(storage, tmp_path, 2, **{name: listed, "counts": {**manifest.counts, **counts}})
    return [fault.fault for fault in verify(storage).faults]


def test_a_row_that_stands_twice(
    sealed: Storage, tmp_path: Path, stored_rows: Rows, key_of: Callable[[str], str]
) -> None:
    faults = _listed(sealed, tmp_path, "shards", stored_rows({"key": "a"}), stored_rows({"key": "a", "attempt": 1}))
    assert faults == [f"1 row_keys stand twice in its shards, first {key_of('a')}"]
    both = _listed(sealed, tmp_path, "shards", stored_rows({"key": "d"}))  # quarantine has it, too
    assert both == [f"1 (row_key, attempt) stand twice in its objects, first {(key_of('d'), 0)}"]


def test_other_columns(sealed: Storage, tmp_path: Path, stored_rows: Rows) -> None:
    table = stored_rows({"key": "a"})
    wrong = table.drop_columns(["engine"]).append_column("more", pa.array([1]))
    wrong = wrong.set_column(5, "attempt", pa.array([0], pa.int64()))
    (fault,) = _listed(sealed, tmp_path, "shards", wrong)
    assert "engine is missing" in fault
    assert "attempt is int64, not int32" in fault
    assert "more is unknown" in fault
    (order,) = _listed(sealed, tmp_path, "shards", table.select(table.column_names[::-1]))
    assert "order" in order


def test_no_parquet_under_a_right_hash(sealed: Storage, tmp_path: Path) -> None:
    from draftmill.identity import sha256

    data = b"PAR1 not really PAR1"
    sealed.create("shards/odd.parquet", data)
    _edit(
        sealed,
        tmp_path,
        2,
        shards=[
            {
                **{"path": "shards/odd.parquet", "bytes": len(data), "rows": 1, "sha256": sha256(data)},
                "made": [{"manifest": 2, "rows": 1}],
            }
        ],
    )
    assert any(fault.fault.startswith("no readable Parquet") for fault in verify(sealed).faults)


def test_a_judge_names_rows_that_are_not_ok(sealed: Storage, key_of: Callable[[str], str]) -> None:
    def judge(table: pa.Table) -> list[str | None]:
        return ["degenerate" if key == key_of("b") else None for key in table["row_key"].to_pylist()]

    (fault,) = verify(sealed, judge=judge).faults
    assert fault.file == objects(sealed)[0]
    assert fault.fault == f"1 rows are degenerate under the manifest's structure, first {key_of('b')}"


SPAN = {"start": 2, "end": 6, "reasoning_end": 3, "finish_reason": "stop", "stop_id": 2}


def _row(rows: Rows, *, good: bool = True, **changes: Any) -> list[str]:
    table = rows({"key": "a"}) if good else rows({"key": "a"}, reason="degenerate")
    values = table.to_pylist()[0] | changes
    spoiled = pa.Table.from_pylist([values], SHARD if good else QUARANTINE)
    sound = rows({"key": "s"}) if good else rows({"key": "s"}, reason="degenerate")
    return [
        fault.removeprefix("1 rows: ").split(",")[0]
        for fault in row_faults(pa.concat_tables([sound, spoiled]), good=good)
    ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"prompt_len": 7}, "prompt_len outside input_ids"),
        ({"prompt_len": 1}, "the first span does not begin at prompt_len"),
        ({"input_ids": [1, 2, 3, 4, 5, 2, 2]}, "the last span does not end with input_ids"),
        ({"input_ids": [1, 2, 3, 4, 5]}, "a span outside input_ids"),
        ({"input_ids": [1, 2, 3, 4, 5, 9]}, "stop_id is not the id that its span ends with"),
        ({"stop_id": None}, "stop_id is not its last span's"),
        ({"reasoning_end": 4}, "reasoning_end is not its last span's"),
        ({"finish_reason": "length"}, "finish_reason is not its last span's"),
        ({"spans": []}, "no span"),
        ({"spans": [SPAN | {"reasoning_end": 1}], "reasoning_end": 1}, "reasoning_end outside its span"),
        (
            {"spans": [SPAN | {"finish_reason": "abort"}], "finish_reason": "abort"},
            "finish_reason neither stop nor length",
        ),
        ({"spans": [SPAN | {"end": 4, "stop_id": None}, SPAN | {"start": 3}]}, "spans that overlap"),
        ({"spans": [None]}, "a span outside input_ids"),
        ({"input_ids": [1, None, 3, 4, 5, 2]}, "null where a value must be: ids in input_ids"),
        ({"prompt_id": None}, "null where a value must be: prompt_id"),
    ],
)
def test_a_row_that_contradicts_itself(stored_rows: Rows, changes: dict[str, Any], fault: str) -> None:
    assert fault in _row(stored_rows, **changes)


def test_sound_rows(stored_rows: Rows) -> None:
    assert _row(stored_rows) == []
    assert (
        _row(
            stored_rows,
            spans=[SPAN | {"end": 4, "stop_id": None}, SPAN | {"start": 4, "reasoning_end": None}],
            reasoning_end=None,
        )
        == []
    )
    empty = {"input_ids": [1, 2], "spans": [SPAN | {"end": 2, "reasoning_end": None, "stop_id": None}]}
    assert _row(stored_rows, good=False, **empty, reasoning_end=None, stop_id=None, reason="empty_output") == []


def test_a_quarantined_row_needs_a_known_reason(stored_rows: Rows) -> None:
    assert _row(stored_rows, good=False, reason="whim") == ["an unknown reason"]
    assert _row(stored_rows, good=False, reason=None) == ["null where a value must be: reason"]


def _with_made(storage: Storage, tmp_path: Path, *made: dict[str, int]) -> list[Fault]:
    manifest = newest(storage)
    assert manifest is not None
    first, *others = [ref.model_dump() for ref in manifest.shards]
    _edit(storage, tmp_path, 2, shards=[{**first, "made": list(made)}, *others])
    return verify(storage).faults


def test_origins_that_do_not_add_up(sealed: Storage, tmp_path: Path) -> None:
    assert _with_made(sealed, tmp_path, {"manifest": 1, "rows": 1}, {"manifest": 2, "rows": 1}) == []
    path = objects(sealed)[0]
    assert _with_made(sealed, tmp_path, {"manifest": 1, "rows": 1}) == [
        Fault("manifests/00000002.json", f"{path}: `made` is of 1 rows, the object has 2")
    ]
    assert _with_made(sealed, tmp_path, {"manifest": 3, "rows": 2}) == [
        Fault("manifests/00000002.json", f"{path}: `made` names version 3, which is later than the manifest")
    ]


def test_counts_and_consumed_parts_that_are_wrong(sealed: Storage, tmp_path: Path) -> None:
    manifest = newest(sealed)
    assert manifest is not None
    assert manifest.counts["attempts"] == {"0": 3}
    consumed = ["completions/x", "completions/x", "shards/y"]
    path = _edit(sealed, tmp_path, 2, counts={**manifest.counts, "attempts": {"0": 2, "1": 1}}, consumed=consumed)
    assert verify(sealed).faults == [
        Fault(path, "counts.attempts is {'0': 2, '1': 1}, its shards have {'0': 3}"),
        Fault(path, "consumed names shards/y, which is no part in completions/"),
        Fault(path, "consumed names a part twice"),
    ]
