"""Slices: their sizes hang on what came before, never on what comes; every row is in one of them, in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.schema import LOADED, REJECTED
from draftmill.prompts import batches
from draftmill.prompts.batches import Columns, Rejects, Slices, slice_rows
from draftmill.prompts.load import Rejected, Slice, stream_prompts
from draftmill.recipe import Prompts
from draftmill.records import Reason, Rejection


def test_a_million_prompts_are_about_a_hundred_slices_and_none_is_large():
    rows, slices = 0, 0
    while rows < 1_000_000:
        rows, slices = rows + slice_rows(slices), slices + 1
    assert slices <= 100
    assert [slice_rows(number) for number in (0, 19, 20, 40, 1000, 10**9)] == [2000, 2000, 4000, 8000, 32000, 32000]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SLICE_ROWS", 3), ("SLICES_A_SIZE", 2), ("SLICE_ROWS_AT_MOST", 6), ("REJECTS_ROWS", 4)):
        monkeypatch.setattr(batches, name, value)


def source(folder: Path, num_rows: int, *, bad: int = 0) -> Prompts:
    rows = [{"id": str(n), "prompt": f"p{n}"} for n in range(num_rows)] + [{"prompt": ""}] * bad
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Prompts(path=str(folder / "a.jsonl"))


def sizes(prompts: Prompts, kind: type[Slice] | type[Rejected]) -> list[int]:
    return [part.table.num_rows for part in stream_prompts(prompts) if isinstance(part, kind)]


@pytest.mark.usefixtures("small")
def test_a_source_that_grows_keeps_its_earlier_slices(tmp_path):
    before = [part.table for part in stream_prompts(source(tmp_path, 17)) if isinstance(part, Slice)]
    after = [part.table for part in stream_prompts(source(tmp_path, 40)) if isinstance(part, Slice)]
    assert [table.num_rows for table in before] == [3, 3, 6, 5]
    assert all(one.equals(other) for one, other in zip(before[:3], after[:3], strict=True))
    assert [name for table in after for name in table["prompt_id"].to_pylist()] == [str(n) for n in range(40)]


@pytest.mark.usefixtures("small")
def test_rejected_rows_come_in_batches_too(tmp_path):
    prompts = source(tmp_path, 1, bad=10)
    assert sizes(prompts, Rejected) == [4, 4, 2]
    assert all(part.table.schema == REJECTED for part in stream_prompts(prompts) if isinstance(part, Rejected))


def test_long_prompts_make_shorter_slices(monkeypatch):
    monkeypatch.setattr(batches, "SLICE_CHARS", 1000)
    slices = Slices()
    for number in range(3):
        assert slices.take() is None
        slices.add(f"p{number}", "s", number, "x" * 400)
    full = slices.take()
    assert full is not None
    assert full.num_rows == 3
    assert slices.take(rest=True) is None


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=50), st.integers(1, 7), st.integers(1, 40))
def test_columns_give_back_every_row_in_order(texts, batch_rows, batch_chars):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "BATCH_ROWS", batch_rows)
        patch.setattr(batches, "BATCH_CHARS", batch_chars)
        columns = Columns(LOADED)
        for line, text in enumerate(texts):
            columns.add((text, "s", line, text))
        table = columns.take()
    assert table.schema == LOADED
    assert table["messages"].to_pylist() == texts
    assert table["line"].to_pylist() == list(range(len(texts)))
    assert columns.take().num_rows == 0


def test_a_rejection_keeps_all_it_says():
    rejects = Rejects()
    rejects.add(Rejection(Reason.PROMPT_INVALID, "why", "id", "a.jsonl", 7))
    table = rejects.take(rest=True)
    assert table is not None
    wanted = {"prompt_id": "id", "source": "a.jsonl", "line": 7, "reason": "prompt_invalid", "detail": "why"}
    wanted["prompt_keys"] = None
    assert table.to_pylist() == [wanted]
