"""Stored rows of several turns: each span is judged, and the first bad one names the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from draftmill.arrays import ids_array
from draftmill.dataset.rejudge import _changed
from draftmill.dataset.row_faults import row_faults
from draftmill.dataset.schema import SHARD
from draftmill.dataset.shards import dataset_rows
from draftmill.generation.conversations import said_of
from draftmill.judging import judged as judged_module
from draftmill.judging.judged import Rules, judge_completions, judged_table
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Reason, Said, Thinking

RULES = Rules("keep", "off")
GOOD = [10, 2, 11, 3]
"""Reasoning, its end, content, the end of the turn."""


@pytest.fixture
def structures(structure_of: Any) -> dict[str, Structure]:
    return {"default": structure_of(Thinking.OPENED_BY_PROMPT)}


@pytest.fixture
def conversation(completion_of: Any, structures: dict[str, Structure]) -> Any:
    """`conversation(answers)`: a row whose earlier turns are spans in its prompt, as a run makes it."""

    def make(answers: Sequence[Sequence[int]]) -> Completion:
        prompt: list[int] = [6, 20, 5, 1]
        spans: tuple[Any, ...] = ()
        for place, answer in enumerate(answers):
            completion: Completion = completion_of(prompt, answer)
            completion = replace(completion, row=replace(completion.row, spans=spans))
            if place == len(answers) - 1:
                return completion
            said = said_of(completion, judge_completions([completion], structures, RULES)[0])
            assert isinstance(said, Said)
            spans = (*said.earlier, said.span)
            prompt = [*prompt, *answer, 5, 21, 5, 1]
        raise AssertionError("a conversation without turns")

    return make


def stored(completions: Sequence[Completion], structures: dict[str, Structure]) -> tuple[pa.Table, pa.Table]:
    return dataset_rows(completions, judge_completions(completions, structures, RULES))


def test_spans_as_they_were_generated(conversation: Any, structures: dict[str, Structure]) -> None:
    good, _ = stored([conversation([GOOD, GOOD, GOOD]), conversation([GOOD])], structures)
    assert row_faults(good, good=True) == []
    first, second = good.to_pylist()
    assert (first["prompt_len"], second["prompt_len"]) == (4, 4)
    assert [(span["start"], span["end"], span["reasoning_end"]) for span in first["spans"]] == [
        (4, 8, 5),
        (12, 16, 13),
        (20, 24, 21),
    ]
    assert (first["reasoning_end"], first["stop_id"], first["finish_reason"]) == (21, 3, "stop")
    assert all(first["input_ids"][span["start"] : span["end"]] == GOOD for span in first["spans"])


def test_good_rows_stay_as_they_are(conversation: Any, structures: dict[str, Structure]) -> None:
    good, _ = stored([conversation([GOOD, GOOD]), conversation([GOOD])], structures)
    judged = judged_table(good, structures, RULES)
    assert judged.reasons == {}
    assert [len(verdict.earlier) for verdict in judged.known] == [1, 0]
    to_good, to_bad = _changed(good, judged.known, was_good=True)
    assert (to_good.num_rows, to_bad.num_rows) == (0, 0)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_the_first_bad_span_names_the_row(conversation: Any, structures: dict[str, Structure], bad: int) -> None:
    good, _ = stored([conversation([GOOD, GOOD, GOOD])], structures)
    row = good.to_pylist()[0]
    # What only a new rule minds: a marker inside, here and in all spans behind.
    for span in row["spans"][bad:]:
        row["input_ids"][span["start"] + 2] = 5
    judged = judged_table(pa.Table.from_pylist([row], SHARD), structures, RULES)
    verdict = judged.known[0]
    assert (verdict.reason, verdict.position) == (Reason.FOREIGN_MARKER, row["spans"][bad]["start"] + 2)
    assert (verdict.reasoning_end, verdict.stop_id) == (21, 3)
    _, to_bad = _changed(pa.Table.from_pylist([row], SHARD), judged.known, was_good=True)
    assert to_bad["spans"].to_pylist() == [row["spans"]]


def test_the_end_of_an_earlier_reasoning_is_put_right(conversation: Any, structures: dict[str, Structure]) -> None:
    good, _ = stored([conversation([GOOD, GOOD])], structures)
    row = good.to_pylist()[0]
    wrong = pa.Table.from_pylist(
        [{**row, "spans": [{**row["spans"][0], "reasoning_end": None}, row["spans"][1]]}], SHARD
    )
    to_good, _ = _changed(wrong, judged_table(wrong, structures, RULES).known, was_good=True)
    assert to_good["spans"].to_pylist() == [row["spans"]]


def test_rows_are_judged_in_batches_of_so_many_ids(
    conversation: Any, structures: dict[str, Structure], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = conversation([GOOD, [10, 2, 3]])
    rows = [conversation([GOOD]), conversation([GOOD, GOOD, GOOD]), conversation([GOOD]), conversation([GOOD, GOOD])]
    good, quarantined = stored([*rows, bad], structures)
    table = pa.concat_tables([good, quarantined.select(SHARD.names)])
    whole = judged_table(table, structures, RULES)
    assert [len(verdict.earlier) for verdict in whole.known] == [0, 2, 0, 1, 1]
    sizes: list[int] = []
    real = judged_module.turns_of

    def counting(part: pa.Table) -> pa.Table:
        turns = real(part)
        sizes.append(len(turns["input_ids"].combine_chunks().values))
        return turns

    monkeypatch.setattr(judged_module, "turns_of", counting)
    for most, batches in ((10_000, 1), (56, 2), (1, 5)):
        sizes.clear()
        monkeypatch.setattr(judged_module, "BATCH_IDS", most)
        assert judged_table(table, structures, RULES) == whole
        assert len(sizes) == batches
        assert max(sizes) <= max(most, 48)


def test_a_bad_last_turn_keeps_those_before_it(conversation: Any, structures: dict[str, Structure]) -> None:
    _, bad = stored([conversation([GOOD, [10, 2, 3]])], structures)
    row = bad.to_pylist()[0]
    assert (row["reason"], len(row["spans"])) == ("empty_content", 2)
    assert row_faults(bad, good=False) == []
    assert judged_table(bad, structures, RULES).reasons == {"empty_content": 1}


def test_a_turn_that_ends_a_conversation_says_why(completion_of: Any, structures: dict[str, Structure]) -> None:
    def words(output: Sequence[int], **fields: Any) -> Any:
        completion = completion_of([6, 20, 5, 1], output, **fields)
        return said_of(completion, judge_completions([completion], structures, RULES)[0])

    assert words([10, 2, 3]).startswith("is empty_content")
    assert words([10, 2, 11], finish_type="length") == "was cut by length"
    said = words(GOOD)
    assert np.array_equal(said.output_ids, ids_array("o", GOOD))
