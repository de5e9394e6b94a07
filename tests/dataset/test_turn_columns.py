"""Earlier turns of a row on their way through journal, parts and commit: nothing lost, nothing counted twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.dataset.commit import commit
from draftmill.dataset.journal import Journal
from draftmill.dataset.schema import completions_table, rows_table, table_completions, table_rows
from draftmill.dataset.seal import Change
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.status import dataset_status
from draftmill.dataset.storage import Storage
from draftmill.records import Completion, HistoryMode, Row, Span, Verdict

Make = Callable[..., Completion]


def turn(make: Make, key: str, *earlier: str, whole: str | None = None) -> Completion:
    completion = make(key)
    spans = tuple(Span(n, n + 1, None if n else 0, "stop", 2) for n in range(len(earlier)))
    row = replace(
        completion.row,
        row_key=key,
        history=HistoryMode.EXTENDS,
        earlier=earlier,
        conversation='{"messages":[],"tools":null}',
        prompt_ids=ids_array("p", range(5, 8)),
        room=100,
        spans=spans,
        whole=whole,
    )
    return Completion(row, completion.answer)


def same(a: Row, b: Row) -> bool:
    plain = ids_array("p", [])
    return np.array_equal(a.prompt_ids, b.prompt_ids) and replace(a, prompt_ids=plain) == replace(b, prompt_ids=plain)


async def test_a_turn_comes_back_from_everywhere(tmp_path: Path, completion: Make) -> None:
    made = turn(completion, "c", "a", "b", whole="d")
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.put(made)
        await journal.flush()
        assert same(journal.find([("c", 0)])["c", 0].row, made.row)
    assert same(table_completions(completions_table([made]))[0].row, made.row)
    assert same(table_rows(rows_table([made.row, completion("x").row]))[0], made.row)


def test_what_the_context_left_counts_as_the_budget(completion: Make) -> None:
    """No larger budget would bring more ids; a server that granted less than that still did."""

    def budget(room: int | None, num_ids: int) -> int:
        made = turn(completion, "b", "a")
        answer = replace(
            made.answer, output_ids=ids_array("o", [9] * num_ids), finish_type="length", finish_length=num_ids
        )
        row = replace(made.row, room=room, max_new_tokens=64)
        good, _ = dataset_rows([Completion(row, answer)], [Verdict(None, "", None, None, None)])
        return int(good["max_new_tokens"][0].as_py())

    assert [budget(20, 20), budget(20, 10), budget(100, 64), budget(None, 20)] == [64, 10, 64, 20]


async def test_an_earlier_turn_is_no_row_of_its_own(storage: Storage, tmp_path: Path, completion: Make) -> None:
    first, second = turn(completion, "a", whole="c"), turn(completion, "b", "a", whole="c")
    with Journal(tmp_path / "journal.sqlite") as journal:
        for each in (first, second):
            journal.put(each)
        await journal.flush()
        assert completions.upload(storage, journal) == 2
        assert dataset_status(storage.url).unfinished == 1
        last = turn(completion, "c", "a", "b")
        good, _ = dataset_rows([last], [Verdict(None, "", None, None, 2)])
        sealed = commit(storage, journal, Change(good=[storage.put_table("shards", good)]))
        assert journal.find([("a", 0), ("b", 0), ("c", 0)]) == {}
    assert dataset_status(storage.url).unfinished == 0
    assert len(sealed.manifest.consumed) == 1
    # The turns are still there for another conversation that begins with them.
    assert completions.generated(storage)["row_key"].to_pylist() == ["a", "b"]
