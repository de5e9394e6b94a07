"""Each planned row lands in one place, whatever the order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.dataset.completions import GENERATED
from draftmill.dataset.plan import CHUNK_ROWS_AT_LEAST, Plan, chunks, make_plan, rows_of_a_chunk
from draftmill.dataset.schema import ROW
from draftmill.dataset.stored import STORED

PLANNED = pa.schema([field for field in ROW if field.name not in ("prompt_ids", "messages", "attempt")])


def planned(*rows: tuple[str, str, int]) -> pa.Table:
    """(row_key, slot, budget)."""
    return pa.Table.from_pylist(
        [
            {
                "row_key": key,
                "prompt_key": slot,
                "prompt_id": slot,
                "variant": "default",
                "sample": 0,
                "max_new_tokens": budget,
                "source": "s",
            }
            for key, slot, budget in rows
        ],
        PLANNED,
    )


def stored(*rows: dict[str, Any]) -> pa.Table:
    """{key, slot=key, attempt=0, finish="stop", budget=64, reason=None, object="shards/x.parquet"}."""
    return pa.Table.from_pylist(
        [
            {
                "row_key": row["key"],
                "prompt_key": row.get("slot", row["key"]),
                "variant": "default",
                "sample": 0,
                "attempt": row.get("attempt", 0),
                "finish_reason": row.get("finish", "stop"),
                "max_new_tokens": row.get("budget", 64),
                "good": row.get("reason") is None,
                "reason": row.get("reason"),
                "object": row.get("object", "shards/x.parquet"),
            }
            for row in rows
        ],
        STORED,
    )


def parts(*rows: tuple[Any, ...]) -> pa.Table:
    """(row_key, attempt, part, finish="stop", budget=64)."""
    return pa.Table.from_pylist(
        [
            {"row_key": key, "attempt": attempt, "finish_type": finish, "max_new_tokens": budget, "part": part}
            for key, attempt, part, finish, budget in ((*row, *("stop", 64)[len(row) - 3 :]) for row in rows)
        ],
        GENERATED,
    )


def plan(rows: pa.Table, known: pa.Table | None = None, waiting: pa.Table | None = None, **options: Any) -> Plan:
    empty = stored() if known is None else known
    return make_plan(rows, empty, parts() if waiting is None else waiting, **{"removed": "keep", **options})


def asked(result: Plan) -> list[tuple[int, int]]:
    return list(zip(result.missing["index"].to_pylist(), result.missing["attempt"].to_pylist(), strict=True))


def dropped(result: Plan) -> set[tuple[str, int]]:
    return {(row["row_key"], row["attempt"]) for row in result.dropped.to_pylist()}


def succession(result: Plan) -> dict[tuple[str, int], str]:
    return {(row["row_key"], row["attempt"]): row["successor"] for row in result.succession.to_pylist()}


def test_a_first_run_asks_everything_in_source_order() -> None:
    result = plan(planned(("b", "B", 64), ("a", "A", 64)))
    assert asked(result) == [(0, 0), (1, 0)]
    assert (result.to_ask, result.kept, result.held, result.resumed) == (2, 0, 0, 0)
    assert result.missing["part"].to_pylist() == [None, None]


def test_a_finished_dataset_asks_nothing() -> None:
    result = plan(planned(("a", "a", 64), ("b", "b", 64)), stored({"key": "a"}, {"key": "b", "reason": "degenerate"}))
    assert (result.kept, result.held, result.missing.num_rows) == (1, 1, 0)


def test_no_source_row_at_all() -> None:
    result = plan(planned(), stored({"key": "a"}, {"key": "b", "reason": "degenerate"}))
    assert (result.carried, result.carried_bad, result.missing.num_rows) == (1, 1, 0)


def test_a_second_row_of_the_same_key_is_a_duplicate_of_the_first() -> None:
    result = plan(planned(("a", "A", 64), ("b", "B", 64), ("a", "C", 64), ("a", "A", 64)))
    assert result.duplicates == {2: 0, 3: 0}
    assert asked(result) == [(0, 0), (1, 0)]


@pytest.mark.parametrize(("budget", "expected"), [(64, []), (32, []), (65, [(0, 1)])])
def test_a_row_cut_by_length_is_asked_again_with_a_larger_budget_only(
    budget: int, expected: list[tuple[int, int]]
) -> None:
    known = stored({"key": "a", "finish": "length", "budget": 64})
    result = plan(planned(("a", "a", budget)), known)
    assert asked(result) == expected
    assert result.kept == 1 - len(expected)


def test_a_row_that_stopped_by_itself_is_kept_at_any_budget() -> None:
    assert plan(planned(("a", "a", 10_000)), stored({"key": "a", "budget": 64})).kept == 1


def test_the_largest_budget_of_all_attempts_counts() -> None:
    known = stored(
        {"key": "a", "finish": "length", "budget": 64},
        {"key": "a", "finish": "length", "budget": 256, "attempt": 1, "reason": "degenerate"},
    )
    assert plan(planned(("a", "a", 256)), known).kept == 1
    assert asked(plan(planned(("a", "a", 257)), known)) == [(0, 2)]


def test_a_held_row_is_asked_for_its_newest_reason_or_a_larger_budget() -> None:
    known = stored(
        {"key": "a", "reason": "degenerate"},
        {"key": "a", "reason": "empty_content", "attempt": 1},
        {"key": "t", "reason": "truncated", "finish": "length"},
    )
    rows = planned(("a", "a", 64), ("t", "t", 64))
    assert plan(rows, known).held == 2
    assert plan(rows, known, again=frozenset({"degenerate"})).held == 2
    assert asked(plan(rows, known, again=frozenset({"empty_content"}))) == [(0, 2)]
    assert asked(plan(planned(("a", "a", 64), ("t", "t", 65)), known)) == [(1, 1)]


def test_a_good_row_is_not_asked_for_a_bad_attempt_beside_it() -> None:
    known = stored({"key": "a"}, {"key": "a", "attempt": 1, "reason": "degenerate"})
    assert plan(planned(("a", "a", 64)), known, again=frozenset({"degenerate"})).kept == 1


def test_what_any_run_answered_is_resumed_from_the_first_part_that_has_it() -> None:
    waiting = parts(("a", 0, "completions/2"), ("a", 0, "completions/1"), ("other", 0, "completions/1"))
    result = plan(planned(("a", "a", 64), ("b", "b", 64)), None, waiting)
    assert result.missing["resumed"].to_pylist() == [True, False]
    assert result.missing["part"].to_pylist() == ["completions/1", None]
    assert (result.resumed, result.to_ask) == (1, 1)


def test_a_row_that_is_not_stored_comes_back_with_its_newest_attempt() -> None:
    waiting = parts(("a", 0, "p1"), ("a", 2, "p3"), ("a", 1, "p2"))
    result = plan(planned(("a", "a", 64)), None, waiting)
    assert (asked(result), result.missing["part"].to_pylist(), result.to_ask) == ([(0, 2)], ["p3"], 0)


@pytest.mark.parametrize(
    ("finish", "budget", "expected"),
    [("length", 63, (1, False)), ("length", 64, (0, True)), ("length", 65, (0, True)), ("stop", 63, (0, True))],
)
def test_a_completion_cut_at_a_smaller_budget_is_not_resumed_but_asked_again(
    finish: str, budget: int, expected: tuple[int, bool]
) -> None:
    result = plan(planned(("a", "a", 64)), None, parts(("a", 0, "p", finish, budget)))
    assert (result.missing["attempt"][0].as_py(), result.missing["resumed"][0].as_py()) == expected
    assert result.missing["part"].to_pylist() == (["p"] if expected[1] else [None])


def test_an_attempt_asked_again_is_resumed_under_its_own_number() -> None:
    known = stored({"key": "a", "finish": "length"})
    rows = planned(("a", "a", 128))
    assert plan(rows, known, parts(("a", 0, "p", "length", 64))).resumed == 0
    assert plan(rows, known, parts(("a", 1, "p"))).resumed == 1
    assert plan(rows, known, parts(("a", 1, "p", "length", 128))).resumed == 1
    cut = plan(rows, known, parts(("a", 1, "p", "length", 127)))
    assert (asked(cut), cut.resumed) == ([(0, 2)], 0)


def test_a_held_row_named_in_again_takes_the_attempt_that_a_killed_run_has_made() -> None:
    known = stored({"key": "a", "attempt": 1, "reason": "degenerate"})
    rows, again = planned(("a", "a", 64)), frozenset({"degenerate"})
    made = plan(rows, known, parts(("a", 0, "p"), ("a", 1, "p"), ("a", 2, "p")), again=again)
    assert (asked(made), made.resumed) == ([(0, 2)], 1)
    new = plan(rows, known, parts(("a", 0, "p"), ("a", 1, "p")), again=again)
    assert (asked(new), new.resumed) == ([(0, 2)], 0)


def test_an_attempt_that_an_interrupted_rerun_has_made_comes_back_by_itself() -> None:
    known = stored({"key": "a", "attempt": 1, "reason": "degenerate"}, {"key": "b"})
    rows = planned(("a", "a", 64), ("b", "b", 64))
    made = plan(rows, known, parts(("a", 2, "p"), ("b", 1, "p")))
    assert (asked(made), made.resumed, made.to_ask, made.held, made.kept) == ([(0, 2)], 1, 0, 0, 1)
    assert kinds(made) == {"again": 1}
    for not_beyond in (("a", 1, "p"), ("a", 2, "p", "length", 32)):
        assert plan(rows, known, parts(not_beyond)).held == 1


def prior(result: Plan) -> list[tuple[int, int | None, str | None]]:
    """(attempt, prior_attempt, prior) of what is asked or resumed."""
    columns = result.missing.to_pydict()
    return list(zip(columns["attempt"], columns["prior_attempt"], columns["prior"], strict=True))


def test_without_continuing_all_is_asked_from_the_start() -> None:
    known = stored({"key": "a", "finish": "length"})
    rows, waiting = planned(("a", "a", 128), ("b", "b", 128)), parts(("b", 0, "p", "length", 64))
    assert prior(plan(rows, known, waiting)) == [(1, None, None), (1, None, None)]


def test_a_stored_row_cut_by_length_is_asked_on_from_its_newest_attempt() -> None:
    known = stored(
        {"key": "a", "finish": "length", "object": "shards/0"},
        {"key": "b"},
        {"key": "c", "finish": "length", "attempt": 2, "reason": "truncated", "object": "quarantine/1"},
        {"key": "d", "finish": "length", "attempt": 0, "object": "shards/2"},
        {"key": "d", "finish": "length", "attempt": 3, "budget": 96, "reason": "truncated", "object": "quarantine/3"},
        {"key": "full", "finish": "length", "budget": 128},
    )
    rows = planned(*((key, key, 128) for key in ("new", "d", "c", "b", "a", "full")))
    result = plan(rows, known, continuing=True)
    assert prior(result) == [(0, None, None), (4, 3, "quarantine/3"), (3, 2, "quarantine/1"), (1, 0, "shards/0")]
    assert (result.kept, result.held, result.to_ask) == (2, 0, 4)


@pytest.mark.parametrize("reason", ["degenerate", "foreign_marker", "corrupted", "prompt_mismatch"])
def test_a_row_that_is_bad_for_more_than_its_length_is_never_asked_on(reason: str) -> None:
    alone = stored({"key": "a", "finish": "length", "reason": reason})
    beside = stored({"key": "a", "finish": "length"}, {"key": "a", "finish": "length", "attempt": 1, "reason": reason})
    rows = planned(("a", "a", 128))
    assert plan(rows, alone, continuing=True).held == 1
    assert plan(rows, beside, continuing=True).kept == 1
    assert prior(plan(rows, alone, continuing=True, again=frozenset({reason}))) == [(1, None, None)]


def test_a_row_asked_again_at_its_full_budget_starts_anew() -> None:
    known = stored({"key": "a", "finish": "length", "budget": 128, "reason": "truncated"})
    result = plan(planned(("a", "a", 128)), known, continuing=True, again=frozenset({"truncated"}))
    assert prior(result) == [(1, None, None)]


def test_what_a_killed_run_has_made_of_a_row_is_asked_on() -> None:
    rounds = parts(("a", 0, "p", "length", 32), ("a", 1, "p", "length", 64), ("a", 2, "q", "length", 96))
    result = plan(planned(("a", "a", 128)), None, rounds, continuing=True)
    assert (prior(result), result.to_ask) == ([(3, 2, "q")], 1)
    known = stored({"key": "a", "finish": "length", "budget": 64, "attempt": 1, "object": "shards/1"})
    assert prior(plan(planned(("a", "a", 128)), known, rounds, continuing=True)) == [(3, 2, "q")]
    older = parts(("a", 0, "p", "length", 32), ("a", 1, "p", "length", 64))
    assert prior(plan(planned(("a", "a", 128)), known, older, continuing=True)) == [(2, 1, "shards/1")]


def test_a_row_that_a_killed_run_has_finished_is_resumed_and_not_asked_on() -> None:
    known = stored({"key": "a", "finish": "length", "object": "shards/1"})
    for last in (("a", 2, "p"), ("a", 2, "p", "length", 128)):
        result = plan(planned(("a", "a", 128)), known, parts(("a", 1, "p", "length", 96), last), continuing=True)
        assert (prior(result), result.resumed) == ([(2, None, None)], 1)


def test_rows_of_removed_prompts_are_carried_or_dropped() -> None:
    known = stored({"key": "a"}, {"key": "gone"}, {"key": "bad", "attempt": 2, "reason": "degenerate"})
    rows = planned(("a", "a", 64))
    keep, drop = plan(rows, known), plan(rows, known, removed="drop")
    assert (keep.carried, keep.carried_bad, dropped(keep)) == (1, 1, set())
    assert (drop.carried, drop.carried_bad) == (0, 0)
    assert dropped(drop) == {("gone", 0), ("bad", 2)}


def test_a_new_key_in_a_slot_supersedes_and_is_not_a_removal() -> None:
    result = plan(planned(("new", "slot", 64)), stored({"key": "old", "slot": "slot"}), removed="drop")
    assert (result.superseded, result.carried, dropped(result)) == (1, 0, set())
    assert asked(result) == [(0, 0)]


def test_each_stored_row_of_a_slot_has_the_planned_row_as_successor() -> None:
    known = stored({"key": "old", "slot": "s"}, {"key": "old", "slot": "s", "attempt": 1, "reason": "degenerate"})
    result = plan(planned(("other", "o", 64), ("new", "s", 64)), known)
    assert succession(result) == {("old", 0): "new", ("old", 1): "new"}
    assert result.superseded == 2


def test_the_successor_of_a_duplicates_slot_is_the_row_it_shares() -> None:
    known = stored({"key": "x", "slot": "A"}, {"key": "y", "slot": "B"})
    result = plan(planned(("k", "B", 64), ("k", "A", 64)), known, removed="drop")
    assert result.duplicates == {1: 0}
    assert succession(result) == {("x", 0): "k", ("y", 0): "k"}
    assert (result.superseded, dropped(result)) == (2, set())


def test_a_row_kept_for_another_prompt_is_neither_removed_nor_superseded() -> None:
    known = stored({"key": "k", "slot": "A"})
    moved = plan(planned(("k", "B", 64)), known, removed="drop")  # A is gone, B has the same ids
    swapped = plan(planned(("k", "B", 64), ("new", "A", 64)), known)
    same = plan(planned(("k", "B", 64), ("k", "A", 64)), known)  # A is B's duplicate now
    for result in (moved, swapped, same):
        assert (result.kept, succession(result), result.superseded, dropped(result)) == (1, {}, 0, set())


def test_a_good_row_is_carried_while_its_successor_is_held() -> None:
    old = {"key": "old", "slot": "s"}
    old_bad = {**old, "attempt": 1, "reason": "truncated"}
    rows = planned(("new", "s", 64))
    held = plan(rows, stored(old, old_bad, {"key": "new", "slot": "s", "reason": "degenerate"}), removed="drop")
    assert (held.held, held.carried, held.carried_bad, held.superseded) == (1, 1, 0, 1)
    assert succession(held) == {("old", 0): "new", ("old", 1): "new"}
    good = plan(rows, stored(old, old_bad, {"key": "new", "slot": "s"}))
    assert (good.kept, good.carried, good.superseded) == (1, 0, 2)


def test_chunks_are_slices_in_source_order() -> None:
    missing = plan(planned(*((str(n), str(n), 64) for n in range(7)))).missing
    cut = chunks(missing, 3)
    assert [c["index"].to_pylist() for c in cut] == [[0, 1, 2], [3, 4, 5], [6]]
    assert chunks(missing.slice(0, 0), 3) == []


def test_rows_of_a_chunk() -> None:
    assert rows_of_a_chunk(0, "auto") == rows_of_a_chunk(1000, "auto") == CHUNK_ROWS_AT_LEAST
    assert rows_of_a_chunk(240_001, "auto") == 1001
    assert rows_of_a_chunk(1000, 7) == 7
    assert rows_of_a_chunk(240_001, 7) == 1001  # never more chunks than a run can show


def with_samples(table: pa.Table, *samples: int) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index("sample"), table.schema.field("sample"), pa.array(samples, pa.int32())
    )


def kinds(result: Plan) -> dict[str, int]:
    return {kind.value: number for kind, number in result.kinds.items() if number}


def test_two_samples_after_one_ask_the_second_ones_only() -> None:
    rows = with_samples(planned(("a0", "a", 64), ("a1", "a", 64), ("b0", "b", 64), ("b1", "b", 64)), 0, 1, 0, 1)
    result = plan(rows, stored({"key": "a0", "slot": "a"}, {"key": "b0", "slot": "b", "reason": "degenerate"}))
    assert asked(result) == [(1, 0), (3, 0)]
    assert (result.kept, result.held, result.superseded, kinds(result)) == (1, 1, 0, {"samples": 2})


def test_one_sample_after_two_is_the_second_ones_removed() -> None:
    known = with_samples(stored({"key": "a0", "slot": "a"}, {"key": "a1", "slot": "a"}), 0, 1)
    result = plan(planned(("a0", "a", 64)), known)
    assert (result.kept, result.carried, result.removed, result.missing.num_rows) == (1, 1, 0, 0)


@pytest.mark.parametrize("removed", ["keep", "drop"])
def test_dropped_is_only_what_is_gone_from_the_source(removed: str) -> None:
    """Not a second sample where one is planned, nor a prompt that is there and cannot be sent."""
    known = with_samples(
        stored(
            *({"key": "a0", "slot": "a"}, {"key": "a1", "slot": "a"}, {"key": "long"}),
            *({"key": "long", "attempt": 1, "reason": "degenerate"}, {"key": "gone"}),
        ),
        *(0, 1, 0, 0, 0),
    )
    result = plan(planned(("a0", "a", 64)), known, removed=removed, rejected=pa.array(["long", "another"]))
    assert (result.kept, result.spared, result.removed) == (1, 2, 1)
    assert dropped(result) == ({("gone", 0)} if removed == "drop" else set())
    assert (result.carried, result.carried_bad) == ((3, 1) if removed == "keep" else (2, 1))
    assert result.missing.num_rows == 0


def test_each_missing_row_is_of_one_kind() -> None:
    known = stored(
        {"key": "old", "slot": "changed"},
        {"key": "longer", "finish": "length", "budget": 32},
        {"key": "again", "reason": "degenerate"},
        {"key": "both", "finish": "length", "budget": 32, "reason": "truncated"},
        {"key": "kept"},
    )
    names = ("new", "longer", "again", "both", "kept", "waits")
    rows = planned(("now", "changed", 64), *((name, name, 64) for name in names))
    result = plan(rows, known, parts(("waits", 0, "p")), again=frozenset({"degenerate", "truncated"}))
    # What an unfinished run has answered is missing too, for the same reason.
    assert kinds(result) == {"new": 2, "changed": 1, "longer": 2, "again": 1}
    assert (result.resumed, result.to_ask, result.kept) == (1, 5, 1)


def test_held_rows_are_counted_by_the_reason_that_stands() -> None:
    known = stored(
        {"key": "a", "reason": "degenerate"},
        {"key": "a", "reason": "truncated", "attempt": 1},
        {"key": "b", "reason": "truncated"},
        {"key": "gone", "reason": "degenerate"},
    )
    result = plan(planned(("a", "a", 64), ("b", "b", 64)), known)
    assert (result.held, result.held_reasons) == (2, {"truncated": 2})


def test_the_good_rows_of_gone_prompts_are_counted_whatever_becomes_of_them() -> None:
    known = stored({"key": "gone"}, {"key": "bad", "reason": "degenerate"}, {"key": "old", "slot": "s"})
    for removed in ("keep", "drop"):
        assert plan(planned(("new", "s", 64)), known, removed=removed).removed == 1


KEYS = st.sampled_from("abcdef")
PLANNED_ROWS = st.lists(st.tuples(KEYS, KEYS, st.sampled_from([32, 64, 128])), max_size=10)
STORED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": KEYS,
            "slot": KEYS,
            "attempt": st.integers(0, 2),
            "finish": st.sampled_from(["stop", "length"]),
            "budget": st.sampled_from([32, 64, 128]),
            "reason": st.sampled_from([None, "degenerate", "truncated"]),
        }
    ),
    max_size=8,
    unique_by=lambda row: (row["key"], row["attempt"]),
)
WAITING = st.lists(
    st.tuples(
        KEYS,
        st.integers(0, 3),
        st.sampled_from(["p1", "p2"]),
        st.sampled_from(["stop", "length"]),
        st.sampled_from([32, 64, 128]),
    ),
    max_size=8,
    unique_by=lambda row: row[:3],
)


def known_in(known: list[Any]) -> list[Any]:
    """As `stored` puts them, without those in quarantine for more than their length."""
    return [row | {"object": "shards/x.parquet"} for row in known if row["reason"] in (None, "truncated")]


@settings(max_examples=60, deadline=None)
@given(PLANNED_ROWS, STORED_ROWS, WAITING, st.sampled_from(["keep", "drop"]), st.booleans(), st.booleans())
def test_each_row_lands_in_exactly_one_place(
    rows: list[Any], known: list[Any], waiting: list[Any], removed: str, again: bool, continuing: bool
) -> None:
    options = {"again": frozenset({"degenerate"} if again else ()), "continuing": continuing}
    result = plan(planned(*rows), stored(*known), parts(*waiting), removed=removed, **options)
    indices = result.missing["index"].to_pylist()
    assert indices == sorted(set(indices))
    assert not set(indices) & set(result.duplicates)
    assert result.missing.num_rows == result.resumed + result.to_ask
    assert len(rows) == result.kept + result.held + len(result.duplicates) + result.resumed + result.to_ask
    # What is asked is the attempt after all those made, whether stored or only generated.
    numbers = {(row["key"], row["attempt"]) for row in known} | {row[:2] for row in waiting}
    for request in result.missing.to_pylist():
        tops = [a for k, a in numbers if k == rows[request["index"]][0]]
        assert request["attempt"] == max(tops, default=-1) + (not request["resumed"])
        # What is asked on is the attempt just before, cut at a smaller budget.
        if request["prior"] is not None:
            assert continuing
            assert not request["resumed"]
            assert request["prior_attempt"] == request["attempt"] - 1
            key, _, budget = rows[request["index"]]
            from_stored = request["prior"] == "shards/x.parquet"
            names = ("key", "attempt", "object", "finish", "budget")
            made = [tuple(r[n] for n in names) for r in known_in(known)] if from_stored else waiting
            assert any(
                row[:4] == (key, request["prior_attempt"], request["prior"], "length") and row[4] < budget
                for row in made
            )
    # Every stored row is carried, dropped, superseded or its key is planned.
    by_key = sum(row["key"] in {key for key, _, _ in rows} for row in known)
    fates = result.carried + result.carried_bad + len(dropped(result)) + result.superseded
    assert by_key + fates == len(known)


@settings(max_examples=100, deadline=None)
@given(PLANNED_ROWS, STORED_ROWS, WAITING, st.booleans())
def test_nothing_is_asked_that_a_part_has(rows: list[Any], known: list[Any], waiting: list[Any], again: bool) -> None:
    reasons = frozenset({"degenerate"} if again else ())
    result = plan(planned(*rows), stored(*known), parts(*waiting), removed="keep", again=reasons)
    tops = {key: max(row["attempt"] for row in known if row["key"] == key) for key in {row["key"] for row in known}}
    for request in result.missing.to_pylist():
        key, _, budget = rows[request["index"]]
        made = sorted(row[1:] for row in waiting if row[0] == key and row[1] > tops.get(key, -1))
        newest = [row for row in made if row[0] == made[-1][0]]
        if request["resumed"]:
            # From the first part that has the newest attempt, and not cut at a smaller budget there.
            assert (request["attempt"], request["part"]) == newest[0][:2]
            assert newest[0][2] == "stop" or newest[0][3] >= budget
        else:
            assert (key, request["attempt"]) not in {row[:2] for row in waiting}
            assert not newest or (newest[0][2] == "length" and newest[0][3] < budget)


@settings(max_examples=60, deadline=None)
@given(PLANNED_ROWS, STORED_ROWS, st.sampled_from(["keep", "drop"]))
def test_succession_is_for_the_unplanned_rows_of_planned_slots(rows: list[Any], known: list[Any], removed: str) -> None:
    result = plan(planned(*rows), stored(*known), removed=removed)
    keys, slots = {key for key, _, _ in rows}, {(slot, key) for key, slot, _ in rows}
    expected = {
        (row["key"], row["attempt"])
        for row in known
        if row["key"] not in keys and row["slot"] in {slot for slot, _ in slots}
    }
    assert set(succession(result)) == expected
    slot_of = {(row["key"], row["attempt"]): row["slot"] for row in known}
    assert all((slot_of[request], successor) in slots for request, successor in succession(result).items())
    assert not dropped(result) & expected


@settings(max_examples=60, deadline=None)
@given(st.data(), PLANNED_ROWS, STORED_ROWS, WAITING, st.booleans())
def test_order_changes_nothing_but_order(
    data: st.DataObject, rows: list[Any], known: list[Any], waiting: list[Any], continuing: bool
) -> None:
    rows = list({key: (key, slot, budget) for key, slot, budget in rows}.values())
    shuffled = data.draw(st.permutations(rows))
    known_too, waiting_too = data.draw(st.permutations(known)), data.draw(st.permutations(waiting))
    one = plan(planned(*rows), stored(*known), parts(*waiting), continuing=continuing)
    two = plan(planned(*shuffled), stored(*known_too), parts(*waiting_too), continuing=continuing)

    def requests(result: Plan, source: list[Any]) -> dict[str, Any]:
        return {source[row["index"]][0]: row | {"index": None} for row in result.missing.to_pylist()}

    assert requests(one, rows) == requests(two, shuffled)
    for name in ("kept", "held", "carried", "carried_bad", "superseded", "removed", "resumed", "to_ask", "kinds"):
        assert getattr(one, name) == getattr(two, name), name
    assert (dropped(one), succession(one)) == (dropped(two), succession(two))
