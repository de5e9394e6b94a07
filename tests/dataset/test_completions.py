"""Parts: what the journal had is found again by request, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.completions import GENERATED, generated, read_completions, unfinished, upload, used_up
from draftmill.dataset.journal import Journal
from draftmill.dataset.schema import completions_table
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import requests_table
from draftmill.errors import DatasetError
from draftmill.records import Completion

Make = Callable[..., Completion]


def test_upload_moves_what_is_pending_once(storage: Storage, tmp_path: Path, completion: Make) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        assert upload(storage, journal) == 0
        assert storage.list("completions") == []
        for name in "abc":
            journal.put(completion(name))
        assert upload(storage, journal) == 3
        assert upload(storage, journal) == 0
        journal.put(completion("d"))
        assert upload(storage, journal) == 1
    keys = unfinished(storage, [])
    assert keys.num_rows == 4
    assert len(set(keys["part"].to_pylist())) == 2


def test_a_kill_between_part_and_mark_costs_nothing(storage: Storage, tmp_path: Path, completion: Make) -> None:
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.put(completion("a"))
        storage.put_table("completions", completions_table(journal.pending()))  # and killed before the mark
        assert upload(storage, journal) == 1
    assert unfinished(storage, []).num_rows == 1


def test_consumed_parts_are_not_read(storage: Storage, completion: Make) -> None:
    one = storage.put_table("completions", completions_table([completion("a")]))
    two = storage.put_table("completions", completions_table([completion("b", attempt=1)]))
    left = unfinished(storage, {one.path})
    assert left.to_pylist() == [{"row_key": completion("b").row.row_key, "attempt": 1, "part": two.path}]
    assert unfinished(storage, [one.path, two.path]).num_rows == 0


def test_what_was_generated_is_in_all_parts_with_how_it_ended(storage: Storage, completion: Make) -> None:
    assert generated(storage).equals(GENERATED.empty_table())
    cut = completion("b", attempt=1, finish_type="length", finish_length=64)
    parts = [storage.put_table("completions", completions_table([made])).path for made in (completion("a"), cut)]
    found = generated(storage)
    assert found.schema.equals(GENERATED)
    rows = {row.pop("part"): row for row in found.to_pylist()}
    key = {name: completion(name).row.row_key for name in "ab"}
    assert rows == {
        parts[0]: {"row_key": key["a"], "attempt": 0, "finish_type": "stop", "max_new_tokens": 64},
        parts[1]: {"row_key": key["b"], "attempt": 1, "finish_type": "length", "max_new_tokens": 64},
    }


def test_an_earlier_turn_waits_only_until_its_row_is_sealed_in_any_attempt(storage: Storage, completion: Make) -> None:
    turn, whole = completion("a", attempt=1), completion("c").row.row_key
    turn = replace(turn, row=replace(turn.row, whole=whole))
    part = storage.put_table("completions", completions_table([turn])).path
    assert unfinished(storage, []).to_pylist() == [{"row_key": whole, "attempt": 0, "part": part}]
    assert used_up(storage, [], [requests_table([(turn.row.row_key, 1)])]) == []
    assert used_up(storage, [], [requests_table([(whole, 0)])]) == [part]


def test_parts_that_gc_takes_between_listing_and_reading_are_left_out(
    storage: Storage, completion: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [storage.put_table("completions", completions_table([completion(name)])).path for name in "abc"]
    listing = storage.list("completions")
    monkeypatch.setattr(storage, "list", lambda folder: listing)
    for taken in (listing[1], listing[0], listing[2]):
        storage.remove(taken)
        left = {part for part in parts if storage.exists(part)}
        assert set(generated(storage)["part"].to_pylist()) == left
        assert set(unfinished(storage, [])["part"].to_pylist()) == left
    assert generated(storage).equals(GENERATED.empty_table())


@pytest.mark.parametrize("read", [generated, lambda storage: unfinished(storage, [])])
def test_a_part_of_an_older_format_is_refused(storage: Storage, completion: Make, read: Any) -> None:
    part = storage.put_table("completions", completions_table([completion("a")]).drop_columns(["line"])).path
    with pytest.raises(DatasetError, match=f"{part} is of another format"):
        read(storage)


def test_all_attempts_of_a_turn_are_found(storage: Storage, completion: Make, tmp_path: Path) -> None:
    made = [completion("a"), completion("a", attempt=2), completion("b", attempt=1)]
    part = storage.put_table("completions", completions_table(made)).path
    turns = {made[0].row.row_key}
    assert set(read_completions(storage, [part], [], turns=turns)) == {each.row.key for each in made[:2]}
    with Journal(tmp_path / "j.sqlite") as journal:
        for each in made:
            journal.put(each)
        assert set(journal.attempts(turns)) == {each.row.key for each in made[:2]}


def test_read_takes_the_named_requests_and_the_first_of_two(storage: Storage, completion: Make) -> None:
    a, b = completion("a", engine="one"), completion("a", engine="two")
    refs = {
        c.answer.engine: storage.put_table("completions", completions_table([c, completion("x")])).path for c in (a, b)
    }
    first = min(refs, key=lambda engine: refs[engine])
    key = (a.row.row_key, 0)
    found = read_completions(storage, sorted(refs.values(), reverse=True), [key, ("unknown", 0)])
    assert list(found) == [key]
    assert found[key].answer.engine == first
    assert found[key].answer.output_ids.tolist() == a.answer.output_ids.tolist()
    assert found[key].answer.created_at == a.answer.created_at
