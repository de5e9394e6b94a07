"""Answers out of completions and out of stored rows say the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from draftmill.dataset.schema import SHARD
from draftmill.judging.answers import NOT_GIVEN, Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Reason, Thinking

ROWS = [([6, 20, 5, 10, 7], [12, 3], "stop", 3), ([5, 7], [12, 5, 3], "stop", 3), ([5, 7], [12], "length", None)]


def shard() -> pa.Table:
    rows = [
        {
            "input_ids": prompt + output,
            "prompt_len": len(prompt),
            "max_new_tokens": 1000,
            "finish_reason": finish,
            "stop_id": stop_id,
        }
        for prompt, output, finish, stop_id in ROWS
    ]
    return pa.Table.from_pylist(rows, schema=SHARD)


@pytest.fixture
def fresh(completion_of: Callable[..., Completion]) -> Answers:
    return Answers.of_completions(
        [completion_of(prompt, output, finish_type=finish) for prompt, output, finish, _ in ROWS]
    )


@pytest.mark.parametrize(
    "table", [shard(), pa.concat_tables([shard().slice(0, 1), shard().slice(1)]), pa.concat_tables([shard()] * 2)[3:]]
)
def test_stored_rows_are_the_fresh_ones(fresh: Answers, table: pa.Table) -> None:
    stored = Answers.of_shard(table)
    for name in ("ids_T", "offsets_B1", "prompt_len_B", "max_new_tokens_B", "finish_type_B", "matched_id_B"):
        assert np.array_equal(getattr(stored, name), getattr(fresh, name)), name
    assert stored.echo_equal_B.all()
    assert (stored.completion_tokens_B == NOT_GIVEN).all()
    assert [stored.row(b).tolist() for b in range(3)] == [prompt + output for prompt, output, *_ in ROWS]


def test_stored_rows_get_the_same_verdicts(fresh: Answers, structure_of: Callable[..., Structure]) -> None:
    both = [
        judge(answers, structure_of(Thinking.NONE), on_truncated="keep", degenerate="auto")
        for answers in (fresh, Answers.of_shard(shard()))
    ]
    lists = [[verdicts.verdict(b) for b in range(3)] for verdicts in both]
    assert lists[0] == lists[1]
    assert [verdict.reason for verdict in lists[0]] == [None, Reason.FOREIGN_MARKER, None]


def test_an_empty_table() -> None:
    for table in (SHARD.empty_table(), shard().slice(0, 0)):
        answers = Answers.of_shard(table)
        assert (len(answers), answers.offsets_B1.tolist()) == (0, [0])
