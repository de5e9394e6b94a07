"""A digest that knows rows, not how they are cut."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.rows_digest import RowsDigest

TYPES = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int32()),
        ("ids", pa.list_(pa.int32())),
        ("spans", pa.list_(pa.struct([("start", pa.int32()), ("why", pa.string())]))),
        ("when", pa.timestamp("ms", tz="UTC")),
    ]
)

INTS = st.one_of(st.none(), st.integers(0, 5))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.one_of(st.none(), st.text("aé", max_size=3)),
            "number": INTS,
            "ids": st.one_of(st.none(), st.lists(INTS, max_size=3)),
            "spans": st.one_of(
                st.none(),
                st.lists(
                    st.one_of(
                        st.none(),
                        st.fixed_dictionaries({"start": INTS, "why": st.one_of(st.none(), st.text("b", max_size=2))}),
                    ),
                    max_size=2,
                ),
            ),
            "when": INTS,
        }
    ),
    max_size=5,
)


def digest(*tables: pa.Table) -> str:
    found = RowsDigest()
    for table in tables:
        found.update(table)
    return found.hexdigest()


@given(rows=ROWS, cut=st.integers(0, 5))
def test_cuts_do_not_matter(rows: list[dict[str, object]], cut: int) -> None:
    table = pa.Table.from_pylist(rows, TYPES)
    pieces = [table.slice(0, cut), table.slice(cut)]
    assert digest(*pieces) == digest(table) == digest(pa.concat_tables(pieces)) == digest(table.combine_chunks())


@given(rows=ROWS, others=ROWS)
def test_other_rows_have_another_digest(rows: list[dict[str, object]], others: list[dict[str, object]]) -> None:
    one, two = (pa.Table.from_pylist(found, TYPES) for found in (rows, others))
    assert (digest(one) == digest(two)) == (one.to_pylist() == two.to_pylist())


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([{"text": "ab"}, {"text": "c"}], [{"text": "a"}, {"text": "bc"}]),
        ([{"ids": [1]}, {"ids": [2, 3]}], [{"ids": [1, 2]}, {"ids": [3]}]),
        ([{"ids": []}], [{"ids": None}]),
        ([{"text": ""}], [{"text": None}]),
        ([{"number": 0}], [{"number": None}]),
        ([{"number": 1}, {"number": 2}], [{"number": 2}, {"number": 1}]),
    ],
)
def test_near_misses(one: list[dict[str, object]], two: list[dict[str, object]]) -> None:
    assert digest(pa.Table.from_pylist(one, TYPES)) != digest(pa.Table.from_pylist(two, TYPES))


def test_rows_as_they_are_stored(stored_rows: Callable[..., pa.Table]) -> None:
    table = stored_rows({"key": "a"}, {"key": "b", "messages": "m"}, reason="degenerate")
    assert digest(table) == digest(table.slice(0, 1), table.slice(1))
    assert digest(table) != digest(table.slice(1), table.slice(0, 1))
