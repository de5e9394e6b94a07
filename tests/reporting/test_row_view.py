"""`draftmill show`: which row a name means, and which part each of its ids belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from draftmill.arrays import ids_array
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import Storage, open_storage
from draftmill.errors import DatasetError, RecipeError
from draftmill.exporting.masks import Mask
from draftmill.judging.structure import Structure
from draftmill.records import Answer, Completion, Reason, Row, Thinking, Verdict
from draftmill.reporting.row_parts import Part
from draftmill.reporting.row_view import row_view

P, M, R, C, E = Part.PROMPT, Part.MARKER, Part.REASONING, Part.CONTENT, Part.END
OPEN, CLOSE, END = 20, 21, 2
NO_RECIPE = {
    "dataset": "d",
    "prompts": {"path": "p"},
    "model": {"name": "no/such-model", "tokenizer": "/no/such/folder", "context_length": 64},
    "sampling": {"temperature": 0, "top_p": 1, "max_new_tokens": 8},
}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "dataset"))


def structure(
    thinking: Thinking, open_ids: tuple[int, ...] = (OPEN,), close_ids: tuple[int, ...] = (CLOSE,)
) -> Structure:
    if thinking is Thinking.NONE:
        open_ids = close_ids = ()
    return Structure("s", thinking, open_ids, close_ids, (END,), (), (), (), 99, ())


def completed(key: str, ids: Sequence[int], *, prompt: Sequence[int] = (1, 5), attempt: int = 0) -> Completion:
    row = Row(key, attempt, "p", key, "default", 0, ids_array("p", list(prompt)), 64, None, "prompts.jsonl")
    when = datetime(2026, 1, 1, tzinfo=UTC)
    return Completion(
        row, Answer(ids_array("o", list(ids)), None, len(prompt), len(ids), "stop", None, ids[-1], "e", None, when)
    )


def good(end: int | None = None, stop_id: int | None = END) -> Verdict:
    return Verdict(None, "", None, end, stop_id)


BAD = Verdict(Reason.DEGENERATE, "a loop", None, None, END)


def sealed(storage: Storage, rules: Structure, *pairs: tuple[Completion, Verdict]) -> None:
    shard, quarantine = dataset_rows([made for made, _ in pairs], [verdict for _, verdict in pairs])
    change = Change(
        good=[storage.put_table("shards", shard)] if shard.num_rows else [],
        bad=[storage.put_table("quarantine", quarantine)] if quarantine.num_rows else [],
        structures={"default": rules.to_json()},
        recipe=NO_RECIPE,
    )
    seal(storage, change)


def parts(storage: Storage, name: str = "0") -> list[Part]:
    return [piece.part for piece in row_view(storage.url, name).pieces]


def test_a_plain_row_is_prompt_content_end(storage: Storage) -> None:
    sealed(storage, structure(Thinking.NONE), (completed("ab" * 32, [10, 11, END]), good()))
    view = row_view(storage.url, "0")
    assert [piece.part for piece in view.pieces] == [P, P, C, C, E]
    assert [piece.id for piece in view.pieces] == [1, 5, 10, 11, END]
    assert "input_ids" not in view.columns
    assert view.columns["prompt_id"] == "ab" * 32
    assert {piece.text for piece in view.pieces} == {None}  # its tokenizer is not at hand


def test_reasoning_that_the_prompt_opened(storage: Storage) -> None:
    made = completed("k" * 64, [10, CLOSE, 11, END], prompt=[1, OPEN])
    sealed(storage, structure(Thinking.OPENED_BY_PROMPT), (made, good(3)))
    assert parts(storage) == [P, P, R, M, C, E]


def test_reasoning_that_the_model_opened(storage: Storage) -> None:
    made = completed("k" * 64, [OPEN, 10, CLOSE, 11, END])
    sealed(storage, structure(Thinking.OPENED_BY_MODEL), (made, good(4)))
    assert parts(storage) == [P, P, M, R, M, C, E]


def test_reasoning_that_never_closed_and_no_end(storage: Storage) -> None:
    sealed(storage, structure(Thinking.OPENED_BY_PROMPT), (completed("k" * 64, [10, 11]), good(None, stop_id=None)))
    assert parts(storage) == [P, P, R, R]


def test_reasoning_that_the_prompt_closed_is_none(storage: Storage) -> None:
    made = completed("k" * 64, [10, END], prompt=[OPEN, CLOSE])
    sealed(storage, structure(Thinking.CLOSED_BY_PROMPT), (made, good()))
    assert parts(storage) == [P, P, C, E]


def test_a_marker_of_several_ids_is_one_only_as_a_whole(storage: Storage) -> None:
    rules = structure(Thinking.OPENED_BY_PROMPT, open_ids=(30, 31), close_ids=(30, 32, 31))
    made = completed("k" * 64, [31, 10, 30, 32, 31, 30, 11, END], prompt=[30, 31])
    sealed(storage, rules, (made, good(6)))
    assert parts(storage) == [P, P, R, R, M, M, M, C, C, E]


@pytest.mark.parametrize(
    ("mask", "on"),
    [(Mask.COMPLETION, [0, 0, 1, 1, 1, 1]), (Mask.REASONING, [0, 0, 1, 1, 0, 0]), (Mask.CONTENT, [0, 0, 0, 0, 1, 1])],
)
def test_what_is_supervised_and_where_an_id_is(storage: Storage, mask: Mask, on: list[int]) -> None:
    made = completed("k" * 64, [10, CLOSE, 11, END], prompt=[1, OPEN])
    sealed(storage, structure(Thinking.OPENED_BY_PROMPT), (made, good(3)))
    view = row_view(storage.url, "0")
    assert view.supervised(mask) == [bool(one) for one in on]
    assert view.places(CLOSE) == [3]
    assert view.places(12345) == []


def test_rows_by_number_good_ones_first_and_by_the_beginning_of_a_key(storage: Storage) -> None:
    rules = structure(Thinking.NONE)
    sealed(
        storage,
        rules,
        (completed("abcd" + "0" * 60, [10, END]), good()),
        (completed("bad1" + "0" * 60, [11, 11, END]), BAD),
        (completed("abff" + "0" * 60, [12, END]), good()),
    )
    ids = {name: row_view(storage.url, name).pieces[2].id for name in ("0", "1", "2", "abff", "bad1" + "0" * 60)}
    assert ids == {"0": 10, "1": 12, "2": 11, "abff": 12, "bad1" + "0" * 60: 11}
    assert row_view(storage.url, "2").columns["reason"] == "degenerate"


def test_a_good_row_stands_for_a_newer_bad_attempt_of_its_key(storage: Storage) -> None:
    key = "abcd" + "0" * 60
    rules = structure(Thinking.NONE)
    sealed(storage, rules, (completed(key, [10, END]), good()), (completed(key, [11, 11, END], attempt=1), BAD))
    assert row_view(storage.url, key).columns["attempt"] == 0
    assert row_view(storage.url, "1").columns["attempt"] == 1


def test_a_row_names_the_manifest_that_brought_it(storage: Storage) -> None:
    rules = structure(Thinking.NONE)
    sealed(storage, rules, (completed("aaaa" + "0" * 60, [10, END]), good()))
    sealed(storage, rules, (completed("bbbb" + "0" * 60, [11, END]), good()), (completed("cccc" + "0" * 60, [9]), BAD))
    assert {name: row_view(storage.url, name).manifest for name in ("aaaa", "bbbb", "cccc")} == {
        "aaaa": 1,
        "bbbb": 2,
        "cccc": 2,
    }


@pytest.mark.parametrize("name", ["2", "99999", "abc", "ffff", "", "-1"])
def test_a_name_of_no_row_is_refused_with_what_is_known(storage: Storage, name: str) -> None:
    rules = structure(Thinking.NONE)
    pairs: list[Any] = [(completed(f"abcd{n}" + "0" * 59, [10, END]), good()) for n in range(2)]
    sealed(storage, rules, *pairs)
    with pytest.raises(RecipeError) as refused:
        row_view(storage.url, name)
    assert "0 to 1" in refused.value.expected


def test_a_beginning_of_two_keys_is_refused(storage: Storage) -> None:
    rules = structure(Thinking.NONE)
    pairs: list[Any] = [(completed(f"abcd{n}" + "0" * 59, [10, END]), good()) for n in range(2)]
    sealed(storage, rules, *pairs)
    with pytest.raises(RecipeError) as refused:
        row_view(storage.url, "abcd")
    assert "2 rows fit" in refused.value.what


def test_no_dataset_and_a_missing_shard_are_named(storage: Storage) -> None:
    with pytest.raises(RecipeError):
        row_view(storage.url, "0")
    sealed(storage, structure(Thinking.NONE), (completed("k" * 64, [10, END]), good()))
    path = storage.list("shards")[0]
    storage.remove(path)
    with pytest.raises(DatasetError) as refused:
        row_view(storage.url, "0")
    assert refused.value.value == path
