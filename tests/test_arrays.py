"""The one gate through which ids enter, and the ragged form they are stored in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.arrays import ID_DTYPE, MAX_ID, OFFSET_DTYPE, flatten, ids_array

IDS = st.lists(st.integers(0, MAX_ID), max_size=8)


@given(IDS)
def test_ids_come_out_as_they_went_in(ids):
    for given_as in (ids, tuple(ids), np.array(ids, np.int64), np.array(ids, np.uint32)):
        array = ids_array("x", given_as)
        assert array.tolist() == ids
        assert array.dtype == ID_DTYPE
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ("123", "wanted a list of integers, got str"),
        (b"123", "got bytes"),
        (None, "got NoneType"),
        ({1, 2}, "got set"),
        ([1, True], "got True"),
        ([1, 2.0], "got 2.0"),
        (["1"], "got '1'"),
        ([1, None], "got None"),
        ([[1], [2]], r"got \[1\]"),
        ([MAX_ID + 1], "beyond 32 bits"),
        ([-(2**31)], "beyond 32 bits"),
        ([2**70], "beyond 64 bits"),
        (np.array([[1]]), "wanted one dimension, got 2"),
        (np.array(1), "wanted one dimension, got 0"),
        (np.array([1.0]), "got dtype float64"),
        (np.array([True]), "got dtype bool"),
        (np.array([2**63], np.uint64), "beyond 32 bits"),
    ],
)
def test_what_is_no_flat_list_of_ids_is_refused_by_name(ids, words):
    with pytest.raises(ValueError, match=rf"^output_ids: .*{words}"):
        ids_array("output_ids", ids)


def test_a_view_is_copied_so_that_its_owner_cannot_change_it():
    owner = np.arange(4, dtype=ID_DTYPE)
    array = ids_array("x", owner[1:])
    owner[:] = 9
    assert array.tolist() == [1, 2, 3]


@given(st.lists(IDS, max_size=5))
def test_flat_and_offsets_hold_every_row(rows):
    flat, offsets_B1 = flatten([ids_array("row", row) for row in rows])
    assert (flat.dtype, offsets_B1.dtype) == (ID_DTYPE, OFFSET_DTYPE)
    assert len(offsets_B1) == len(rows) + 1
    assert [flat[a:b].tolist() for a, b in itertools.pairwise(offsets_B1)] == rows


def test_flatten_takes_an_iterator_once():
    flat, offsets_B1 = flatten(ids_array("row", [n]) for n in range(3))
    assert flat.tolist() == [0, 1, 2]
    assert offsets_B1.tolist() == [0, 1, 2, 3]
