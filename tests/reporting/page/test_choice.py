"""Which rows and objects a page is made of."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.storage import ObjectRef
from draftmill.reporting.page.choice import Candidate, Smallest, first_of, spread


def column(values: list[object]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values)])


def ref(number: int, size: int) -> ObjectRef:
    return ObjectRef(path=str(number), bytes=size, rows=1, sha256="")


@given(
    st.lists(st.lists(st.text("0123456789abcdef", min_size=4, max_size=4), min_size=1), max_size=6), st.integers(1, 9)
)
def test_the_smallest_keys_in_whatever_parts_they_come(parts: list[list[str]], limit: int) -> None:
    smallest = Smallest(limit)
    for part in parts:
        smallest.add(column([*part]), column([0] * len(part)), column([3] * len(part)))
    assert [row.key for row in smallest.rows()] == sorted(key for part in parts for key in part)[:limit]


def test_a_row_that_does_not_fit_is_passed_over() -> None:
    rows = [Candidate("a", 0, 5), Candidate("b", 0, 9), Candidate("c", 0, 4)]
    assert [row.key for row in first_of(rows, 10)] == ["a", "c"]


def test_of_a_small_dataset_every_object_is_read() -> None:
    refs = [ref(n, 10) for n in range(7)]
    assert spread(refs, 70) == refs
    assert spread([], 70) == []


def test_of_a_large_one_evenly_spaced_objects() -> None:
    refs = [ref(n, 10) for n in range(100)]
    assert [each.path for each in spread(refs, 50)] == ["0", "25", "50", "74", "99"]
    assert [each.path for each in spread(refs, 1)] == ["0"]
