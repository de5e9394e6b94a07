"""The plan against what it should be, written as plainly as it can be said: row by row, with lists."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.dataset.completions import GENERATED
from draftmill.dataset.numbers import Texts
from draftmill.dataset.plan import Kind, Plan, make_plan
from draftmill.dataset.schema import ROW
from draftmill.dataset.stored import STORED

PLANNED = pa.schema([field for field in ROW if field.name not in ("prompt_ids", "messages", "attempt")])

KEYS = st.sampled_from("abcdef")
BUDGETS = st.sampled_from([32, 64, 128])
FINISHES = st.sampled_from(["stop", "length"])
SLOT = {"prompt_key": st.sampled_from("PQR"), "variant": st.sampled_from("xy"), "sample": st.integers(0, 1)}

PLANNED_ROWS = st.lists(
    st.fixed_dictionaries({"row_key": KEYS, **SLOT, "max_new_tokens": BUDGETS, "source": st.just("s")}), max_size=10
)
STORED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "row_key": KEYS,
            **SLOT,
            "attempt": st.integers(0, 2),
            "finish_reason": FINISHES,
            "max_new_tokens": BUDGETS,
            "reason": st.sampled_from([None, "degenerate", "truncated"]),
            "object": st.sampled_from(["one", "two"]),
        }
    ).map(lambda row: row | {"good": row["reason"] is None}),
    max_size=10,
    unique_by=lambda row: (row["row_key"], row["attempt"]),
)
GENERATED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "row_key": KEYS,
            "attempt": st.integers(0, 3),
            "finish_type": FINISHES,
            "max_new_tokens": BUDGETS,
            "part": st.sampled_from(["p2", "p1", "p3"]),
        }
    ),
    max_size=8,
    unique_by=lambda row: (row["row_key"], row["attempt"], row["part"]),
)
OPTIONS = st.fixed_dictionaries(
    {
        "removed": st.sampled_from(["keep", "drop"]),
        "again": st.sampled_from([frozenset(), frozenset({"degenerate"}), frozenset({"degenerate", "truncated"})]),
        "continuing": st.booleans(),
        "rejected": st.lists(SLOT["prompt_key"], max_size=2),
    }
)

Row = dict[str, Any]


def slot(row: Row) -> tuple[Any, ...]:
    return row["prompt_key"], row["variant"], row["sample"]


def why_missing(
    row: Row, mine: list[Row], made: list[Row], stored: list[Row], again: frozenset[str], continuing: bool
) -> Kind | None:
    """None: it is not."""
    if not mine:
        if slot(row) in {slot(other) for other in stored}:
            return Kind.CHANGED
        return Kind.SAMPLES if slot(row)[:2] in {slot(other)[:2] for other in stored} else Kind.NEW
    stands = max(mine, key=lambda other: (other["good"], other["attempt"]))
    newest = max(mine, key=lambda other: other["attempt"])
    cut = stands["finish_reason"] == "length"
    if continuing:
        cut = newest["finish_reason"] == "length" and newest["reason"] in (None, "truncated")
    if cut and max(other["max_new_tokens"] for other in mine) < row["max_new_tokens"]:
        return Kind.LONGER
    if stands["good"]:
        return None
    is_made = request(row, mine, made, continuing)[1]
    return Kind.AGAIN if is_made or stands["reason"] in again else None


def request(row: Row, mine: list[Row], made: list[Row], continuing: bool) -> tuple[Any, ...]:
    """(attempt, resumed, part, prior_attempt, prior)."""
    newest = max(mine, key=lambda other: other["attempt"], default=None)
    top = newest["attempt"] if newest else -1
    beyond = [other for other in made if other["attempt"] > top]
    if beyond:
        last = min(beyond, key=lambda other: (-other["attempt"], other["part"]))
        if last["finish_type"] == "stop" or last["max_new_tokens"] >= row["max_new_tokens"]:
            return last["attempt"], True, last["part"], None, None
        prior = (last["attempt"], last["part"]) if continuing else (None, None)
        return last["attempt"] + 1, False, None, *prior
    if newest is not None and continuing:
        goes_on = newest["finish_reason"] == "length" and newest["reason"] in (None, "truncated")
        if goes_on and max(other["max_new_tokens"] for other in mine) < row["max_new_tokens"]:
            return top + 1, False, None, top, newest["object"]
    return top + 1, False, None, None, None


def reference(
    planned: list[Row],
    stored: list[Row],
    generated: list[Row],
    *,
    removed: str,
    again: frozenset[str],
    continuing: bool,
    rejected: list[str],
) -> dict[str, Any]:
    first: dict[str, int] = {}
    missing, duplicates, kinds, places = [], {}, Counter[Kind](), Counter[str]()
    coming = {row["row_key"] for row in stored if row["good"]}
    for index, row in enumerate(planned):
        key = row["row_key"]
        if key in first:
            duplicates[index] = first[key]
            continue
        first[key] = index
        mine = [other for other in stored if other["row_key"] == key]
        made = [other for other in generated if other["row_key"] == key]
        kind = why_missing(row, mine, made, stored, again, continuing)
        if kind is None:
            places["kept" if any(other["good"] for other in mine) else "held"] += 1
            continue
        missing.append((index, *request(row, mine, made, continuing)))
        kinds[kind] += 1
        coming.add(key)
        places["resumed" if missing[-1][2] else "to_ask"] += 1
    dropped, succession = set(), {}
    for row in stored:
        if row["row_key"] in first:
            continue
        name = row["row_key"], row["attempt"]
        side = "carried" if row["good"] else "carried_bad"
        heirs = sorted(other["row_key"] for other in planned if slot(other) == slot(row))
        if heirs:
            succession[name] = heirs[0]
            places["carried" if row["good"] and heirs[0] not in coming else "superseded"] += 1
            continue
        is_there = row["prompt_key"] in rejected or slot(row)[:2] in {slot(other)[:2] for other in planned}
        places["spared" if is_there else "removed"] += row["good"]
        if removed == "drop" and not is_there:
            dropped.add(name)
        else:
            places[side] += 1
    return {
        "missing": missing,
        "duplicates": duplicates,
        "kinds": {kind: kinds[kind] for kind in Kind},
        "dropped": dropped,
        "succession": succession,
        **{name: places[name] for name in NUMBERS},
    }


NUMBERS = ("kept", "held", "carried", "carried_bad", "superseded", "removed", "spared", "resumed", "to_ask")


def found(plan: Plan) -> dict[str, Any]:
    columns = ("index", "attempt", "resumed", "part", "prior_attempt", "prior")
    return {
        "missing": [tuple(row[name] for name in columns) for row in plan.missing.to_pylist()],
        "duplicates": plan.duplicates,
        "kinds": plan.kinds,
        "dropped": {(row["row_key"], row["attempt"]) for row in plan.dropped.to_pylist()},
        "succession": {(row["row_key"], row["attempt"]): row["successor"] for row in plan.succession.to_pylist()},
        **{name: getattr(plan, name) for name in NUMBERS},
    }


def as_numbers(*tables: pa.Table) -> list[pa.Table]:
    """The keys as `known` has them: dictionary columns over one list of texts."""
    texts = {"row_key": Texts(), "prompt_key": Texts()}
    columns = [{name: texts[name].add(table[name]) for name in texts if name in table.column_names} for table in tables]
    return [
        pa.table(
            {name: texts[name].column(found[name]) if name in found else table[name] for name in table.column_names}
        )
        for table, found in zip(tables, columns, strict=True)
    ]


@settings(max_examples=100, deadline=None)
@given(PLANNED_ROWS, STORED_ROWS, GENERATED_ROWS, OPTIONS, st.booleans())
def test_the_plan_is_the_plain_one(
    planned: list[Row], stored: list[Row], generated: list[Row], options: dict[str, Any], numbers: bool
) -> None:
    tables = [
        pa.Table.from_pylist(rows, schema)
        for rows, schema in ((planned, PLANNED), (stored, STORED), (generated, GENERATED))
    ]
    rejected = pa.array(options["rejected"], pa.string())
    plan = make_plan(*(as_numbers(*tables) if numbers else tables), **{**options, "rejected": rejected})
    assert found(plan) == reference(planned, stored, generated, **options)
    assert sum(plan.kinds.values()) == plan.missing.num_rows
    assert sum(plan.held_reasons.values()) == plan.held
