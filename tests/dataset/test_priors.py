"""Ids so far are found where the plan says they are; what cannot be had is left out, never an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from draftmill.arrays import ids_array
from draftmill.dataset.priors import PRIORS, read_priors
from draftmill.dataset.schema import completions_table
from draftmill.dataset.storage import Storage
from draftmill.records import Completion

Make = Callable[..., Completion]


def priors(*rows: tuple[str, int, int, str]) -> pa.Table:
    """(row_key, attempt, prior_attempt, prior)."""
    return pa.Table.from_pylist([dict(zip(PRIORS.names, row, strict=True)) for row in rows], PRIORS)


def cut(completion: Make, name: str, ids: list[int], attempt: int = 0, **changes: Any) -> Completion:
    counts = {"completion_tokens": len(ids), "finish_length": len(ids)}
    facts = {"output_ids": ids_array("o", ids), "finish_type": "length", "matched": None}
    return completion(name, attempt, **(facts | counts | changes))


def test_from_shards_quarantine_and_parts(
    storage: Storage, completion: Make, stored_rows: Callable[..., pa.Table], key_of: Callable[[str], str]
) -> None:
    names = "abcd"
    a, b, c, d = (key_of(name) for name in names)
    shard = storage.put_table("shards", stored_rows({"key": "x"}, {"key": "a"}, {"key": "b", "attempt": 2})).path
    held = storage.put_table("quarantine", stored_rows({"key": "c", "attempt": 1}, reason="truncated")).path
    rounds = [cut(completion, "d", [8] * (attempt + 1), attempt) for attempt in range(3)]
    part = storage.put_table("completions", completions_table([completion("x"), *rounds])).path
    wanted = priors((a, 1, 0, shard), (b, 3, 2, shard), (c, 2, 1, held), (d, 2, 1, part))
    answers = read_priors(storage, wanted)
    found = {key: answer.output_ids.tolist() for key, answer in answers.items()}
    # A row of `stored_rows`: two prompt ids, then [40 + its number in the table, 163607, 41, 2].
    assert found == {
        (a, 1): [41, 163607, 41, 2],
        (b, 3): [42, 163607, 41, 2],
        (c, 2): [40, 163607, 41, 2],
        (d, 2): [8, 8],
    }


def test_an_answer_comes_with_what_is_known_of_it(
    storage: Storage, completion: Make, stored_rows: Callable[..., pa.Table], key_of: Callable[[str], str]
) -> None:
    of_part = cut(completion, "a", [8, 9], weight_version="w1")
    part = storage.put_table("completions", completions_table([of_part])).path
    rows = stored_rows({"key": "b", "finish": "length"}, {"key": "c", "finish": "length"})
    versions = pa.array(["w2", None], pa.string())
    rows = rows.set_column(rows.schema.get_field_index("weight_version"), "weight_version", versions)
    shard = storage.put_table("shards", rows).path
    wanted = priors((key_of("a"), 1, 0, part), (key_of("b"), 1, 0, shard), (key_of("c"), 1, 0, shard))
    a, b, c = (read_priors(storage, wanted)[key_of(name), 1] for name in "abc")
    assert replace(a, output_ids=None) == replace(of_part.answer, output_ids=None)
    assert (b.finish_type, b.engine, b.weight_version) == ("length", "sglang 0.5.23", "w2")
    assert b.created_at == of_part.answer.created_at
    assert (b.echo_ids, b.prompt_tokens, b.completion_tokens, b.finish_length, b.matched) == (None,) * 5
    assert c.weight_version is None


def test_what_is_gone_is_left_out(
    storage: Storage, completion: Make, stored_rows: Callable[..., pa.Table], key_of: Callable[[str], str]
) -> None:
    a, b = key_of("a"), key_of("b")
    shard = storage.put_table("shards", stored_rows({"key": "a"})).path
    part = storage.put_table("completions", completions_table([cut(completion, "b", [8])])).path
    gone = [storage.put_table(f, stored_rows({"key": f})) for f in ("shards", "quarantine", "completions")]
    for ref in gone:
        storage.remove(ref.path)
    wanted = [*((key_of(ref.path), 1, 0, ref.path) for ref in gone), (a, 2, 1, shard), (b, 2, 1, part)]
    assert read_priors(storage, priors(*wanted)) == {}
    assert list(read_priors(storage, priors(*wanted, (b, 1, 0, part)))) == [(b, 1)]
    assert read_priors(storage, PRIORS.empty_table()) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"echo_ids": ids_array("e", [1])},
        {"prompt_tokens": 2},
        {"completion_tokens": 1},
        {"finish_length": 3},
        {"finish_type": "abort"},
        {"finish_type": "stop"},
        {"output_ids": ids_array("o", [])},
        {"output_ids": ids_array("o", [8] * 65), "completion_tokens": 65, "finish_length": 65},
    ],
)
def test_no_ids_are_taken_from_a_part_that_may_not_be_the_rows_own(
    storage: Storage, completion: Make, key_of: Callable[[str], str], wrong: dict[str, Any]
) -> None:
    made = [cut(completion, "a", [8, 9], **wrong), cut(completion, "b", [8, 9])]
    part = storage.put_table("completions", completions_table(made)).path
    found = read_priors(storage, priors((key_of("a"), 1, 0, part), (key_of("b"), 1, 0, part)))
    assert list(found) == [(key_of("b"), 1)]
