"""The plan as objects: each chunk holds exactly its planned rows, and the numbers of the plan close."""

from __future__ import annotations

import hashlib
import json
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.dataset.chunks import _with_ids, plan_run
from draftmill.dataset.plan import MISSING, SUCCESSION, chunks
from draftmill.dataset.rejected import rejections_table
from draftmill.dataset.schema import ROW, SHARD, completions_table, rows_table, table_rows
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import ObjectRef, Storage, open_storage
from draftmill.dataset.stored import REQUESTS, requests_table
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Completion, HistoryMode, Reason, Rejection, Row

NONE = frozenset[str]()


def build_row(number: int) -> Row:
    key = hashlib.sha256(str(number).encode()).hexdigest()
    ids = ids_array("p", list(range(number % 5 + 1)))
    return Row(key, 0, f"p{number}", str(number), "default", 0, ids, 64, f"m{number}", "prompts.jsonl")


def recipe(**sampling: Any) -> Recipe:
    data = {
        "dataset": "unused",
        "prompts": {"path": "unused"},
        "model": {"name": "m", "context_length": 4096},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64, **sampling},
        "chunk_rows": 3,
    }
    return parse_recipe(data, origin="the test")


def slices_of(storage: Storage, rows: list[Row], sizes: list[int]) -> list[str]:
    """The rows as rendered slices of these sizes; the last one takes the rest. Some may be empty."""
    table, paths, start = rows_table(rows), [], 0
    for size in [*sizes, len(rows)]:
        part = table.slice(start, size)
        paths.append(storage.put_table("prompts", part).path)
        start += part.num_rows
    return paths


def missing_of(chosen: list[int], attempts: list[int]) -> pa.Table:
    """Rows to ask from the start."""
    rows = [
        {"index": index, "attempt": attempt, "resumed": False} for index, attempt in zip(chosen, attempts, strict=True)
    ]
    return pa.Table.from_pylist(rows, MISSING)


def with_ids(storage: Storage, paths: list[str], parts: list[pa.Table]) -> Iterator[pa.Table]:
    return _with_ids(storage, paths, [storage.read_table(path, ["row_key"]).num_rows for path in paths], parts)


def same_rows(table: pa.Table, rows: list[Row]) -> bool:
    return bool(table.schema.equals(ROW) and table.equals(rows_table(rows)))


@given(data=st.data())
@settings(max_examples=40)
def test_each_chunk_holds_its_planned_rows_whatever_the_slices(data: st.DataObject) -> None:
    rows = [build_row(number) for number in range(data.draw(st.integers(1, 30)))]
    sizes = data.draw(st.lists(st.integers(0, 8), max_size=6))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    attempts = data.draw(st.lists(st.integers(0, 3), min_size=len(chosen), max_size=len(chosen)))
    missing = missing_of(chosen, attempts)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(folder)
        slices = chunks(missing, data.draw(st.integers(1, 9)))
        tables = list(with_ids(storage, slices_of(storage, rows, sizes), slices))
    planned = [replace(rows[index], attempt=attempt) for index, attempt in zip(chosen, attempts, strict=True)]
    assert [table.num_rows for table in tables] == [part.num_rows for part in slices]
    assert same_rows(pa.concat_tables(tables).combine_chunks(), planned)


def test_a_chunk_spread_over_many_slices_reads_each_once_and_holds_one(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [build_row(number) for number in range(200)]
    paths = slices_of(storage, rows, [10] * 20)
    chosen = [*range(3, 100, 20), 103, 104, 107, *range(123, 200, 20)]  # of every second slice, a chunk ends within one
    missing = missing_of(chosen, [0] * 12)
    read: list[str] = []
    whole: list[weakref.ref[pa.Table]] = []
    real = Storage.read_table

    def counting(self: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        table = real(self, path, columns)
        if columns == ROW.names:
            assert sum(slice() is not None for slice in whole) <= 1  # the one about to be let go
            read.append(path)
            whole.append(weakref.ref(table))
        return table

    monkeypatch.setattr(Storage, "read_table", counting)
    tables = list(with_ids(storage, paths, chunks(missing, 7)))
    assert same_rows(pa.concat_tables(tables).combine_chunks(), [rows[index] for index in chosen])
    assert read == paths[0:20:2]


def plan_of(storage: Storage, paths: list[str], **options: Any) -> dict[str, Any]:
    settings = {"rejected": [], "again": NONE} | options
    return plan_run(storage, settings.pop("recipe", recipe()), rows=paths, **settings)


def shard_of(storage: Storage, rows: list[Row]) -> ObjectRef:
    """The rows answered and good."""
    names = ["row_key", "prompt_key", "prompt_id", "variant", "sample", "attempt", "max_new_tokens", "source"]
    given = rows_table(rows).select(names).to_pylist()
    fixed: dict[str, Any] = {"input_ids": [1, 2], "prompt_len": 1, "finish_reason": "stop", "engine": "e"}
    fixed["spans"] = [{"start": 1, "end": 2, "reasoning_end": None, "finish_reason": "stop", "stop_id": 2}]
    return storage.put_table("shards", pa.Table.from_pylist([row | fixed for row in given], SHARD))


def rows_in(storage: Storage, plan: dict[str, Any]) -> list[Row]:
    return [row for chunk in plan["chunks"] for row in table_rows(storage.read_table(chunk["rows"]["path"]))]


def closes(plan: dict[str, Any]) -> bool:
    places = ("kept", "held", "num_rejected", "resumed", "to_ask")
    return bool(plan["planned"] == sum(plan[place] for place in places))


def test_a_first_run_plans_all_rows_in_source_order(storage: Storage) -> None:
    rows = [build_row(number) for number in range(8)]
    plan = plan_of(storage, slices_of(storage, rows, [3, 3]))
    assert [(chunk["number"], chunk["total"], chunk["num_rows"]) for chunk in plan["chunks"]] == [
        (1, 3, 3),
        (2, 3, 3),
        (3, 3, 2),
    ]
    assert [row.row_key for row in rows_in(storage, plan)] == [row.row_key for row in rows]
    assert (plan["planned"], plan["to_ask"], plan["manifest"], plan["rejected"]) == (8, 8, 0, None)
    assert closes(plan)


def test_the_same_rows_make_the_same_objects_however_they_are_sliced(storage: Storage) -> None:
    rows = [build_row(number) for number in range(8)]
    first = plan_of(storage, slices_of(storage, rows, [3, 3]))
    again = plan_of(storage, slices_of(storage, rows, [1, 6]))
    assert [chunk["rows"] for chunk in first["chunks"]] == [chunk["rows"] for chunk in again["chunks"]]


def test_stored_and_finished_rows_are_not_asked(
    storage: Storage, stored_rows: Callable[..., pa.Table], completion: Callable[..., Completion]
) -> None:
    rows = [build_row(number) for number in range(4)]
    kept = stored_rows({"key": "kept"})
    kept = kept.set_column(0, "row_key", pa.array([rows[0].row_key]))
    seal(storage, Change(good=[storage.put_table("shards", kept)]))
    finished = completions_table([Completion(rows[2], completion("x").answer)])
    part = storage.put_table(completions.FOLDER, finished)
    # That a manifest has used the part up changes nothing: what it has is not asked again.
    seal(storage, Change(good=[shard_of(storage, [rows[2]])]))
    dropped = seal(storage, Change(dropped=requests_table([(rows[2].row_key, 0)]))).manifest
    assert dropped.consumed == [part.path]
    plan = plan_of(storage, slices_of(storage, rows, []))
    assert (plan["kept"], plan["resumed"], plan["to_ask"], plan["manifest"]) == (1, 1, 2, 3)
    assert [row.row_key for row in rows_in(storage, plan)] == [row.row_key for row in rows[1:]]
    assert [(chunk["resumed"], chunk["parts"]) for chunk in plan["chunks"]] == [(1, [part.path])]
    assert closes(plan)


def test_a_chunk_names_what_its_rows_are_asked_on_from(
    storage: Storage, stored_rows: Callable[..., pa.Table], completion: Callable[..., Completion]
) -> None:
    rows = [replace(build_row(number), max_new_tokens=320) for number in range(6)]
    kept = stored_rows({"key": "cut", "finish": "length"}).set_column(0, "row_key", pa.array([rows[4].row_key]))
    shard = storage.put_table("shards", kept)
    seal(storage, Change(good=[shard]))
    answer = completion("x", finish_type="length", finish_length=3, matched=None).answer
    made = Completion(replace(rows[1], attempt=2, max_new_tokens=64), answer)
    part = storage.put_table(completions.FOLDER, completions_table([made]))
    paths = slices_of(storage, rows, [])
    asked_on = plan_of(storage, paths, recipe=recipe().model_copy(update={"on_truncated": "continue"}))
    tables = [chunk["priors"] and storage.read_table(chunk["priors"]["path"]) for chunk in asked_on["chunks"]]
    assert [table.to_pylist() for table in tables] == [
        [{"row_key": rows[1].row_key, "attempt": 3, "prior_attempt": 2, "prior": part.path}],
        [{"row_key": rows[4].row_key, "attempt": 1, "prior_attempt": 0, "prior": shard.path}],
    ]
    anew = plan_of(storage, paths)
    assert [chunk["priors"] for chunk in anew["chunks"]] == [None, None]
    # The same rows to ask, from the ids so far or anew.
    assert [chunk["rows"] for chunk in asked_on["chunks"]] == [chunk["rows"] for chunk in anew["chunks"]]
    assert closes(asked_on)


def test_a_chunk_names_the_parts_that_have_earlier_turns_of_its_rows(
    storage: Storage, stored_rows: Callable[..., pa.Table], completion: Callable[..., Completion]
) -> None:
    """In any attempt; of a row that is asked again those from its own attempt on."""
    turn = completion("turn").row.row_key
    conversations = [
        replace(build_row(number), history=HistoryMode.EXTENDS, earlier=(turn,), conversation="{}") for number in (0, 1)
    ]
    bad = stored_rows({"key": "bad"}, reason="degenerate").set_column(
        0, "row_key", pa.array([conversations[1].row_key])
    )
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "x"}))]))
    seal(storage, Change(bad=[storage.put_table("quarantine", bad)]))
    parts = [
        storage.put_table(completions.FOLDER, completions_table([completion("turn", attempt=attempt)])).path
        for attempt in (0, 2)
    ]
    paths = slices_of(storage, conversations, [])
    assert [chunk["parts"] for chunk in plan_of(storage, paths)["chunks"]] == [sorted(parts)]
    again = plan_of(storage, slices_of(storage, conversations[1:], []), again=frozenset({"degenerate"}))
    assert [chunk["parts"] for chunk in again["chunks"]] == [parts[1:]]


NUMBERS = ("planned", "kept", "held", "carried", "superseded", "removed", "resumed", "to_ask", "kinds", "num_rejected")


@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_another_order_or_cut_of_the_source_changes_nothing(data: st.DataObject) -> None:
    rows = [build_row(number) for number in range(data.draw(st.integers(1, 12)))]
    known = [row for row in rows if data.draw(st.booleans())]
    shuffled = data.draw(st.permutations(rows))
    # Elsewhere in other files: a row's name there is another too.
    moved = [replace(row, source=f"part-{n % 3}.jsonl", line=n, prompt_id=f"n{n}") for n, row in enumerate(shuffled)]
    sizes = data.draw(st.lists(st.integers(0, 8), max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(folder)
        if known:
            seal(storage, Change(good=[shard_of(storage, known)]))
        before = plan_of(storage, slices_of(storage, rows, []))
        after = plan_of(storage, slices_of(storage, moved, sizes))
        assert {name: before[name] for name in NUMBERS} == {name: after[name] for name in NUMBERS}
        keys = [sorted(row.row_key for row in rows_in(storage, plan)) for plan in (before, after)]
        assert keys[0] == keys[1] == sorted({row.row_key for row in rows} - {row.row_key for row in known})
        assert (after["kept"], after["superseded"], after["succession"]) == (len(known), 0, None)


def test_the_plan_says_why_rows_are_missing_and_which_are_gone(storage: Storage) -> None:
    rows = [build_row(number) for number in range(4)]
    seal(storage, Change(good=[shard_of(storage, [rows[0], build_row(8), build_row(9)])]))
    second = replace(build_row(5), prompt_key=rows[0].prompt_key, sample=1)
    paths = slices_of(storage, [*rows, second], [])
    plan = plan_of(storage, paths)
    assert plan["kinds"] == {"new": 3, "samples": 1, "changed": 0, "longer": 0, "again": 0}
    assert (plan["removed"], plan["carried"], plan["dropped"]) == ({"kept": 2, "dropped": 0}, 2, None)
    assert plan["slices"] == paths
    dropping = plan_of(storage, paths, recipe=recipe().model_copy(update={"removed": "drop"}))
    assert (dropping["removed"], dropping["carried"]) == ({"kept": 0, "dropped": 2}, 0)
    dropped = storage.read_table(dropping["dropped"]["path"])
    assert dropped.schema.equals(REQUESTS)
    gone = sorted(build_row(number).row_key for number in (8, 9))
    assert dropped.to_pylist() == [{"row_key": key, "attempt": 0} for key in gone]


def test_keys_become_text_again_only_where_they_are_written(storage: Storage) -> None:
    """A million rows to leave out are an object, not a message of Prefect's."""
    seal(storage, Change(good=[shard_of(storage, [build_row(number) for number in range(500)])]))
    paths = slices_of(storage, [build_row(1000)], [])
    plan = plan_of(storage, paths, recipe=recipe().model_copy(update={"removed": "drop"}))
    assert (plan["dropped"]["rows"], len(json.dumps(plan)) < 5000) == (500, True)


def test_a_duplicate_has_its_line_and_names_that_of_the_first(storage: Storage) -> None:
    first = replace(build_row(1), source="a.jsonl", line=7)
    later = [replace(first, prompt_id="x", source="b.jsonl", line=9), replace(first, prompt_id="y", line=None)]
    plan = plan_of(storage, slices_of(storage, [build_row(0), first, *later], [2]))
    rejected = storage.read_table(plan["rejected"]["path"]).to_pylist()
    assert [(row["source"], row["line"], row["prompt_id"]) for row in rejected] == [
        ("b.jsonl", 9, "x"),
        ("a.jsonl", None, "y"),
    ]
    assert {row["detail"] for row in rejected} == {"the same ids as a.jsonl:7 (1)"}


def test_a_duplicate_is_rejected_once_and_names_the_first(storage: Storage) -> None:
    first = build_row(1)
    rows = [first, build_row(2), replace(first, prompt_id="again"), replace(first, prompt_id="and again")]
    plan = plan_of(storage, slices_of(storage, rows, [2]))
    rejected = storage.read_table(plan["rejected"]["path"]).to_pylist()
    assert [(row["reason"], row["prompt_id"]) for row in rejected] == [
        ("duplicate", "again"),
        ("duplicate", "and again"),
    ]
    assert all("prompts.jsonl (1)" in row["detail"] for row in rejected)
    assert (plan["planned"], plan["num_rejected"], plan["to_ask"]) == (4, 2, 2)
    assert closes(plan)


def test_a_rejected_prompt_stands_for_all_its_samples_and_a_duplicate_for_itself(storage: Storage) -> None:
    rows = [build_row(1), replace(build_row(1), prompt_id="again")]
    bad = [
        Rejection(Reason.PROMPT_INVALID, "no messages", "a", "prompts.jsonl", 7),
        Rejection(Reason.PROMPT_TOO_LONG, "9000 ids", "b", "prompts.jsonl", None),
    ]
    path = storage.put_table("prompts", rejections_table(bad)).path
    plan = plan_of(storage, slices_of(storage, rows, []), rejected=[path], recipe=recipe(samples=4))
    assert plan["rejected_reasons"] == {"duplicate": 1, "prompt_invalid": 4, "prompt_too_long": 4}
    assert plan["num_rejected"] == 9
    assert storage.read_table(plan["rejected"]["path"]).num_rows == 3
    assert closes(plan)


def test_a_plan_without_work_has_no_chunks(storage: Storage, stored_rows: Callable[..., pa.Table]) -> None:
    row = build_row(0)
    kept = stored_rows({"key": "kept"}).set_column(0, "row_key", pa.array([row.row_key]))
    seal(storage, Change(good=[storage.put_table("shards", kept)]))
    plan = plan_of(storage, slices_of(storage, [row], []))
    assert (plan["chunks"], plan["to_ask"], plan["kept"]) == ([], 0, 1)


def test_the_plan_names_who_follows_whom(storage: Storage, stored_rows: Callable[..., pa.Table]) -> None:
    row = build_row(0)
    old = stored_rows({"key": "old"})
    old = old.set_column(1, "prompt_key", pa.array([row.prompt_key]))
    seal(storage, Change(good=[storage.put_table("shards", old)]))
    plan = plan_of(storage, slices_of(storage, [row], []))
    succession = storage.read_table(plan["succession"]["path"])
    assert succession.schema.equals(SUCCESSION)
    assert succession.to_pylist() == [{"row_key": old["row_key"][0].as_py(), "attempt": 0, "successor": row.row_key}]
    assert (plan["superseded"], plan["carried"], plan["to_ask"]) == (1, 0, 1)


def test_a_damaged_slice_is_not_planned_from(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        plan_of(storage, ["prompts/gone.parquet"])


@pytest.mark.parametrize("removed", ["keep", "drop"])
@pytest.mark.parametrize("reason", [Reason.PROMPT_TOO_LONG, Reason.SPECIAL_TEXT, Reason.PROMPT_INVALID])
def test_stored_rows_of_a_prompt_that_is_rejected_now_stay(
    storage: Storage, stored_rows: Callable[..., pa.Table], removed: str, reason: Reason
) -> None:
    old = stored_rows({"key": "old"}, {"key": "gone"})
    seal(storage, Change(good=[storage.put_table("shards", old)]))
    keys = (old["prompt_key"][0].as_py(),)
    bad = [Rejection(reason, "now", "old", "prompts.jsonl", 7, keys), Rejection(reason, "", "b", "prompts.jsonl", 8)]
    path = storage.put_table("prompts", rejections_table(bad)).path
    rule = recipe().model_copy(update={"removed": removed})
    plan = plan_of(storage, slices_of(storage, [build_row(0)], []), rejected=[path], recipe=rule)
    gone = {"kept": int(removed == "keep"), "dropped": int(removed == "drop")}
    assert (plan["spared"], plan["carried"], plan["removed"]) == (1, 1 + gone["kept"], gone)
    dropped = storage.read_table(plan["dropped"]["path"])["row_key"].to_pylist() if plan["dropped"] else []
    assert dropped == ([old["row_key"][1].as_py()] if removed == "drop" else [])
    assert closes(plan)
