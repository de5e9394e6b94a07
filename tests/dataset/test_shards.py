"""Completions as dataset rows: docs/dataset.md's columns, ids joined and nothing else done to them; verdicts stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.arrays import ids_array
from draftmill.dataset import shards
from draftmill.dataset.row_faults import row_faults
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import parquet_bytes
from draftmill.dataset.verdicts import table_verdicts, verdicts_table
from draftmill.errors import RecipeError
from draftmill.records import Completion, Reason, Verdict

Make = Callable[..., Completion]
GOOD = Verdict(None, "", None, None, 2)
BAD = Verdict(Reason.DEGENERATE, "a loop of 3 ids", 4, None, 2)

CONTRACT = [
    ("row_key", "string"),
    ("prompt_key", "string"),
    ("prompt_id", "string"),
    ("variant", "string"),
    ("sample", "int32"),
    ("attempt", "int32"),
    ("input_ids", "list<element: int32>"),
    ("prompt_len", "int32"),
    (
        "spans",
        "list<element: struct<start: int32, end: int32, reasoning_end: int32, finish_reason: string, stop_id: int32>>",
    ),
    ("reasoning_end", "int32"),
    ("max_new_tokens", "int32"),
    ("finish_reason", "string"),
    ("stop_id", "int32"),
    ("engine", "string"),
    ("weight_version", "string"),
    ("messages", "string"),
    ("source", "string"),
    ("created_at", "timestamp[ms, tz=UTC]"),
]


def columns(table: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, str(field.type).replace("item:", "element:")) for field in table.schema]


def test_the_columns_are_the_contracts(completion: Make) -> None:
    good, bad = dataset_rows([completion("a"), completion("b")], [GOOD, BAD])
    assert columns(good) == CONTRACT
    assert columns(bad) == [*CONTRACT, ("reason", "string"), ("detail", "string")]


def test_tables_without_rows_have_the_columns_too() -> None:
    good, bad = dataset_rows([], [])
    assert (good.schema, bad.schema) == (SHARD, QUARANTINE)
    assert (good.num_rows, bad.num_rows) == (0, 0)


def test_a_row_is_prompt_and_output_joined(completion: Make) -> None:
    verdict = Verdict(None, "", None, 4, 2)
    row = dataset_rows([completion("a", 3)], [verdict])[0].to_pylist()[0]
    assert row["input_ids"] == [1, 2, 3, 10, 11, 2]
    assert (row["prompt_len"], row["reasoning_end"], row["stop_id"], row["finish_reason"]) == (3, 4, 2, "stop")
    assert row["spans"] == [{"start": 3, "end": 6, "reasoning_end": 4, "finish_reason": "stop", "stop_id": 2}]
    assert (row["attempt"], row["max_new_tokens"], row["engine"]) == (3, 64, "sglang 0.5.23")
    assert row["created_at"] == completion("a").answer.created_at


def test_pandas_reads_it_as_it_lies(completion: Make, tmp_path: Path) -> None:
    good, _ = dataset_rows([completion("a")], [GOOD])
    (tmp_path / "shard.parquet").write_bytes(parquet_bytes(good))
    frame = pd.read_parquet(tmp_path / "shard.parquet")
    assert frame.loc[0, "input_ids"].tolist() == [1, 2, 3, 10, 11, 2]
    assert frame.loc[0, "input_ids"].dtype == np.int32


@pytest.mark.parametrize(
    ("finish", "length", "budget"), [("length", 3, 3), ("length", 64, 64), ("length", 99, 64), ("length", None, 64)]
)
def test_a_row_cut_by_length_has_the_budget_that_was_granted(
    completion: Make, finish: str, length: int | None, budget: int
) -> None:
    cut = completion("a", finish_type=finish, finish_length=length, matched=None)
    row = dataset_rows([cut], [Verdict(None, "", None, None, None)])[0].to_pylist()[0]
    assert (row["max_new_tokens"], row["finish_reason"], row["stop_id"]) == (budget, "length", None)


def test_a_row_that_stopped_has_the_budget_it_was_asked_with(completion: Make) -> None:
    stopped = completion("a", finish_length=3)
    assert dataset_rows([stopped], [GOOD])[0].to_pylist()[0]["max_new_tokens"] == 64


def test_a_chunk_beyond_one_column_says_what_to_do(completion: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MOST_IDS", 11)
    dataset_rows([completion("a")], [GOOD])
    with pytest.raises(RecipeError) as refused:
        dataset_rows([completion("a"), completion("b")], [GOOD, GOOD])
    assert "chunk_rows" in refused.value.remedy
    assert "12 ids in 2 rows" in str(refused.value.value)


ids = st.lists(st.integers(0, 200_000), max_size=6)


@given(outputs=st.lists(st.tuples(ids, st.booleans()), max_size=8))
def test_every_row_is_in_exactly_one_table_in_order(completion: Make, outputs: list[tuple[list[int], bool]]) -> None:
    made = [completion(str(number), output_ids=ids_array("o", output)) for number, (output, _) in enumerate(outputs)]
    verdicts = [Verdict(None, "", None, None, None) if fine else BAD for _, fine in outputs]
    good, bad = dataset_rows(made, verdicts)
    for table, wanted in ((good, True), (bad, False)):
        expected = [[1, 2, 3, *output] for output, fine in outputs if fine is wanted]
        assert table["input_ids"].to_pylist() == expected
    assert set(bad["reason"].to_pylist()) <= {"degenerate"}
    assert good.num_rows + bad.num_rows == len(outputs)
    if bad.num_rows:
        assert [fault for fault in row_faults(bad, good=False) if "stop_id" not in fault] == []


some = st.none() | st.integers(0, 1000)
verdict_values = st.builds(Verdict, st.none() | st.sampled_from(Reason), st.text(max_size=5), some, some, some)


@given(verdicts=st.lists(verdict_values, max_size=6))
def test_verdicts_come_back_as_they_were(completion: Make, verdicts: list[Verdict]) -> None:
    table = verdicts_table([completion(str(number)) for number in range(len(verdicts))], verdicts)
    assert table_verdicts(table) == verdicts
    assert table["row_key"].to_pylist() == [completion(str(n)).row.row_key for n in range(len(verdicts))]
