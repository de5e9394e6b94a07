"""Stored rows under present rules: only those with another verdict move, and no request is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from draftmill.arrays import ids_array
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.rejudge import Rejudged, moved_requests, rejudge
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.dataset.stored import row_counts
from draftmill.errors import DatasetError
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge, judge_one
from draftmill.judging.structure import Structure
from draftmill.records import OF_THE_EXCHANGE, Completion, Reason, Thinking, Verdict

OPEN, CLOSE, END, OTHER_END = 20, 21, 2, 4
Make = Callable[..., Completion]


def structure(*, thinks: bool = True, ends: tuple[int, ...] = (END,)) -> Structure:
    markers: dict[str, Any] = (
        {"open_ids": (OPEN,), "close_ids": (CLOSE,)} if thinks else {"open_ids": (), "close_ids": ()}
    )
    thinking = Thinking.OPENED_BY_PROMPT if thinks else Thinking.NONE
    return Structure(
        name="s", thinking=thinking, end_ids=ends, foreign_ids=(), tail_ids=(3,), blank_ids=(), highest_id=99,
        evidence=(), **markers,
    )  # fmt: skip


def answered(make: Make, name: str, ids: Sequence[int], **changes: Any) -> Completion:
    fields = {"output_ids": ids_array("o", list(ids)), "completion_tokens": len(ids), "matched": ids[-1]}
    return make(name, **{**fields, **changes})


def sealed(storage: Storage, made: Sequence[Completion], rules: Structure) -> Manifest:
    """The dataset a run under these rules leaves."""
    verdicts = [judge_one(item, rules, on_truncated="keep", degenerate="off") for item in made]
    good, bad = dataset_rows(made, verdicts)
    change = Change(
        good=[storage.put_table("shards", good)] if good.num_rows else [],
        bad=[storage.put_table("quarantine", bad)] if bad.num_rows else [],
    )
    return seal(storage, change).manifest


def rejudged(storage: Storage, manifest: Manifest, rules: Structure) -> Rejudged:
    def judge_table(table: pa.Table) -> list[Verdict]:
        verdicts = judge(Answers.of_shard(table), rules, on_truncated="keep", degenerate="off")
        return [verdicts.verdict(b) for b in range(table.num_rows)]

    return rejudge(storage, manifest, judge_table)


def moved(storage: Storage, outcome: Rejudged) -> pa.Table:
    return moved_requests(storage, outcome.good, outcome.bad)


def rows(storage: Storage, refs: Sequence[ObjectRef]) -> dict[str, dict[str, Any]]:
    return {row["prompt_id"]: row for ref in refs for row in storage.read_table(ref.path).to_pylist()}


@pytest.fixture
def mixed(completion: Make) -> list[Completion]:
    return [
        answered(completion, "closed", [10, CLOSE, 11, END]),
        answered(completion, "open", [10, 11, END]),
        answered(completion, "other end", [10, CLOSE, 11, OTHER_END], matched=None),
        answered(completion, "aborted", [10, CLOSE, 11, END], finish_type="abort", matched=None),
        answered(completion, "cut", [10, 11], finish_type="length", matched=None, finish_length=2),
    ]


@pytest.mark.parametrize("rules", [structure(), structure(thinks=False), structure(ends=(END, OTHER_END))])
def test_the_same_rules_change_nothing(storage: Storage, mixed: list[Completion], rules: Structure) -> None:
    outcome = rejudged(storage, sealed(storage, mixed, rules), rules)
    assert outcome == Rejudged([], [], 0, 0)


def test_looser_rules_bring_rows_back(storage: Storage, mixed: list[Completion]) -> None:
    manifest = sealed(storage, mixed, structure())
    assert set(rows(storage, manifest.quarantine)) == {"open", "other end", "aborted"}
    outcome = rejudged(storage, manifest, structure(ends=(END, OTHER_END)))
    assert (outcome.to_good, outcome.to_bad, outcome.bad) == (1, 0, [])
    good = rows(storage, outcome.good)
    assert list(good) == ["other end"]
    row = good["other end"]
    assert (row["stop_id"], row["reasoning_end"]) == (OTHER_END, 4)
    assert row["spans"][-1]["stop_id"] == OTHER_END
    assert row["input_ids"] == [1, 2, 3, 10, CLOSE, 11, OTHER_END]
    assert moved(storage, outcome).to_pylist() == [{"row_key": row["row_key"], "attempt": 0}]


def test_stricter_rules_move_rows_out_with_their_reason(storage: Storage, mixed: list[Completion]) -> None:
    manifest = sealed(storage, mixed, structure(thinks=False))
    outcome = rejudged(storage, manifest, structure())
    bad = rows(storage, outcome.bad)
    # "other end" stays where it is, with the end of its reasoning.
    assert {name: (row["reason"], row["reasoning_end"]) for name, row in bad.items()} == {
        "open": ("reasoning_not_closed", None),
        "other end": ("no_end_of_turn", 4),
    }
    assert bad["open"]["detail"]
    assert (outcome.to_good, outcome.to_bad) == (0, 1)
    assert set(rows(storage, outcome.good)) == {"closed"}


def test_a_good_row_whose_reasoning_ends_elsewhere_now_is_written_anew_and_counts_as_none(
    storage: Storage, mixed: list[Completion]
) -> None:
    manifest = sealed(storage, mixed[:1], structure(thinks=False))
    assert rows(storage, manifest.shards)["closed"]["reasoning_end"] is None
    outcome = rejudged(storage, manifest, structure())
    row = rows(storage, outcome.good)["closed"]
    assert (row["reasoning_end"], row["spans"][-1]["reasoning_end"]) == (4, 4)
    assert (outcome.to_good, outcome.to_bad) == (0, 0)
    sealed_again = seal(storage, Change(good=outcome.good, dropped=moved(storage, outcome)))
    assert (sealed_again.sealed, sealed_again.tally.good_rows, sealed_again.tally.moved) == (True, 1, 1)


def test_another_reason_stays_in_quarantine_under_its_new_name(storage: Storage, mixed: list[Completion]) -> None:
    manifest = sealed(storage, mixed[1:3], structure())
    assert rows(storage, manifest.quarantine)["other end"]["reason"] == "no_end_of_turn"
    low = structure()
    low = Structure(**{name: getattr(low, name) for name in Structure.__slots__} | {"highest_id": 9})
    outcome = rejudged(storage, manifest, low)
    assert {row["reason"] for row in rows(storage, outcome.bad).values()} == {"id_out_of_range"}
    assert (outcome.to_good, outcome.to_bad, moved(storage, outcome).num_rows) == (0, 0, 2)


def test_rows_are_counted_by_row_key_however_many_attempts_stand(storage: Storage, completion: Make) -> None:
    good, bad = [10, CLOSE, 11, END], [10, 11, END]
    attempts = [("a", 0, good), ("a", 1, bad), ("b", 0, bad), ("c", 0, good)]
    made = [answered(completion, name, ids, attempt=attempt) for name, attempt, ids in attempts]
    manifest = sealed(storage, made, structure())
    assert (manifest.counts["good_rows"], manifest.counts["quarantined_rows"]) == (2, 2)
    assert row_counts(storage, manifest) == (2, 1)
    outcome = rejudged(storage, manifest, structure(thinks=False))
    after = seal(storage, Change(good=outcome.good, bad=outcome.bad, dropped=moved(storage, outcome)))
    assert row_counts(storage, after.manifest) == (after.tally.good_rows, after.tally.held) == (3, 0)
    assert after.tally.replaced == 1


def test_a_rejudge_supersedes_nothing(storage: Storage, stored_rows: Callable[..., pa.Table]) -> None:
    tables = [stored_rows({"key": key, "slot": "s"}, reason="degenerate") for key in ("old", "new")]
    manifest = seal(storage, Change(bad=[storage.put_table("quarantine", table) for table in tables])).manifest
    outcome = rejudge(storage, manifest, lambda table: [Verdict(None, "", None, 3, 2)] * table.num_rows)
    after = seal(storage, Change(good=outcome.good, dropped=moved(storage, outcome)))
    assert (after.tally.good_rows, after.tally.superseded) == (2, 0)


@pytest.mark.parametrize("reason", sorted(OF_THE_EXCHANGE))
def test_facts_of_the_exchange_are_never_judged_again(
    storage: Storage, stored_rows: Callable[..., pa.Table], reason: Reason
) -> None:
    table = stored_rows({"key": "a"}, reason=str(reason))
    manifest = seal(storage, Change(bad=[storage.put_table("quarantine", table)])).manifest

    def all_good(table: pa.Table) -> list[Verdict]:
        return [Verdict(None, "", None, 3, 2)] * table.num_rows

    assert rejudge(storage, manifest, all_good) == Rejudged([], [], 0, 0)


def test_a_shard_that_is_gone_is_named(storage: Storage, mixed: list[Completion]) -> None:
    manifest = sealed(storage, mixed, structure())
    storage.remove(manifest.shards[0].path)
    with pytest.raises(DatasetError) as refused:
        rejudged(storage, manifest, structure())
    assert refused.value.value == manifest.shards[0].path
