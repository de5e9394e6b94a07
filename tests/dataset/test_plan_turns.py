"""Conversations in a plan: what stands on what, which rows stay together, where the earlier turns are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.completions import GENERATED
from draftmill.dataset.plan import MISSING, Plan, chunks, make_plan
from draftmill.dataset.plan_turns import ancestors, blocked, newest_good, parts_of, roots
from draftmill.dataset.schema import ROW
from draftmill.dataset.stored import SHARED, STORED

PLANNED = pa.schema([field for field in ROW if field.name not in ("prompt_ids", "messages", "conversation")])


def planned(*turns: tuple[str, ...], history: str | None = "rewrites") -> pa.Table:
    """Each: the row_keys of the turns before it, and its own."""
    common = {"variant": "default", "sample": 0, "max_new_tokens": 64, "source": "s", "history": history}
    return pa.Table.from_pylist(
        [common | {"row_key": key, "prompt_key": key, "earlier": list(earlier)} for *earlier, key in turns], PLANNED
    )


def stored(**finishes: str) -> pa.Table:
    """`a="stop"`, `a="length"`, or a reason of quarantine."""
    rows = []
    for key, finish in finishes.items():
        good = finish in ("stop", "length")
        row: dict[str, Any] = {"row_key": key, "prompt_key": key, "variant": "default", "sample": 0, "attempt": 0}
        row |= {"finish_reason": finish if good else "stop", "max_new_tokens": 64, "good": good}
        rows.append(row | {"reason": None if good else finish, "object": f"shards/{key}.parquet"})
    return pa.Table.from_pylist(rows, STORED)


def generated(*keys: str, part: str = "completions/p") -> pa.Table:
    row = {"attempt": 0, "finish_type": "stop", "max_new_tokens": 64, "part": part}
    return pa.Table.from_pylist([row | {"row_key": key} for key in keys], GENERATED)


def plan(rows: pa.Table, sealed: pa.Table, parts: pa.Table | None = None, **options: Any) -> Plan:
    return make_plan(rows, sealed, generated() if parts is None else parts, removed="keep", **options)


def asked(made: Plan, rows: pa.Table) -> list[str]:
    missing = made.missing.filter(pa.compute.invert(made.missing["resumed"]))
    return [str(key) for key in rows["row_key"].take(missing["index"]).to_pylist()]


THREE = [("a",), ("a", "b"), ("a", "b", "c")]


@pytest.mark.parametrize(
    ("sealed", "counts", "to_ask"),
    [
        ({}, (0, 0), ["a", "b", "c"]),
        ({"a": "stop"}, (1, 0), ["b", "c"]),
        ({"a": "empty_content"}, (0, 3), []),
        ({"a": "stop", "b": "degenerate"}, (1, 2), []),
        ({"a": "length"}, (1, 2), []),
        ({"a": "stop", "b": "stop", "c": "length"}, (3, 0), []),
        ({"a": "empty_content", "b": "stop", "c": "stop"}, (2, 1), []),  # judged anew, what stands on it stays
        ({"a": "empty_content", "b": "stop"}, (1, 2), []),
    ],
)
def test_what_stands_on_a_bad_or_cut_turn_is_held(
    sealed: dict[str, str], counts: tuple[int, int], to_ask: list[str]
) -> None:
    rows = planned(*THREE)
    made = plan(rows, stored(**sealed))
    assert ((made.kept, made.held), asked(made, rows)) == (counts, to_ask)
    assert made.kept + made.held + made.to_ask + made.resumed == 3


def test_a_turn_that_is_asked_again_carries_the_others() -> None:
    rows = planned(*THREE)
    made = plan(rows, stored(a="stop", b="degenerate"), again=frozenset({"degenerate"}))
    assert asked(made, rows) == ["b", "c"]
    made = plan(rows.set_column(rows.schema.get_field_index("max_new_tokens"), PLANNED.field("max_new_tokens"),
                                pa.array([128] * 3, pa.int32())), stored(a="length"))  # fmt: skip
    assert asked(made, rows) == ["a", "b", "c"]


def test_what_is_there_is_brought_back_whatever_it_stands_on() -> None:
    rows = planned(*THREE)
    made = plan(rows, stored(a="empty_content"), generated("b"))
    assert (made.resumed, made.held, made.to_ask) == (1, 2, 0)


def test_a_held_row_is_not_asked_again_on_top_of_nothing() -> None:
    rows = planned(*THREE)
    made = plan(rows, stored(a="empty_content", b="degenerate"), again=frozenset({"degenerate"}))
    assert (made.held, made.to_ask) == (3, 0)


def test_rows_that_extend_their_history_stand_on_nothing_else() -> None:
    rows = planned(("a", "b"), ("a", "c"), history="extends")
    made = plan(rows, stored(a="empty_content", b="length"))
    assert (made.kept, asked(made, rows)) == (1, ["c"])


@given(st.lists(st.sampled_from(["stop", "length", "bad", "none", "part"]), min_size=1, max_size=5))
def test_a_turn_is_asked_only_where_all_before_it_will_be_there(states: list[str]) -> None:
    keys = "abcde"[: len(states)]
    rows = planned(*(tuple(keys[: n + 1]) for n in range(len(keys))))
    by_key = dict(zip(keys, states, strict=True))
    finishes = {key: "degenerate" if s == "bad" else s for key, s in by_key.items() if s in ("stop", "length", "bad")}
    made = plan(rows, stored(**finishes), generated(*(key for key, s in by_key.items() if s == "part")))
    assert made.kept + made.held + made.to_ask + made.resumed == len(states)
    to_ask = asked(made, rows)
    for place, (key, state) in enumerate(zip(keys, states, strict=True)):
        before = states[:place]
        assert (key in to_ask) == (state == "none" and not {"length", "bad"} & set(before))


def test_one_first_turn_one_chunk() -> None:
    rows = planned(("x",), ("a",), ("y",), ("a", "b"), ("z",), ("x", "w"))
    missing = pa.Table.from_pylist([{"index": n, "attempt": 0, "resumed": False} for n in range(6)], MISSING)
    made = chunks(missing, 2, roots(rows))
    assert [part["index"].to_pylist() for part in made] == [[0, 5], [1, 3], [2, 4]]
    assert roots(planned(("a",), history=None)) is None


def test_where_the_earlier_turns_are() -> None:
    sealed = stored(a="stop", b="degenerate", c="stop")
    newer = stored(a="stop").set_column(4, STORED.field("attempt"), pa.array([2], pa.int32()))
    newer = newer.set_column(9, STORED.field("object"), pa.array(["shards/newer.parquet"], SHARED))
    places = newest_good(["a", "b"], pa.concat_tables([newer, sealed]))
    assert places == {"a": (2, "shards/newer.parquet")}
    found = ancestors({"a", "b"}, places)
    assert found.to_pylist() == [{"row_key": "a", "attempt": 2, "object": "shards/newer.parquet"}]
    parts = pa.concat_tables([generated("a", "b"), generated("a", part="completions/q")])
    assert parts_of(["a", "z"], parts) == {"a": [(0, "completions/p"), (0, "completions/q")]}


def test_nothing_stands_on_what_is_not_planned() -> None:
    assert blocked({"b": ["a"]}, missing={"b"}, resumed=set(), settled=set()) == {"b"}
