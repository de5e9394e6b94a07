"""Which version brought a row: kept through whatever happens to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.manifest import DataRef, Made
from draftmill.dataset.origin import data_ref, row_versions
from draftmill.dataset.storage import ObjectRef
from draftmill.errors import DatasetError


def ref(rows: int) -> ObjectRef:
    return ObjectRef(path="shards/x.parquet", bytes=3, rows=rows, sha256="x")


@given(st.lists(st.integers(1, 4)))
def test_versions_row_by_row_and_back(versions: list[int]) -> None:
    made = data_ref(ref(len(versions)), versions)
    assert row_versions(made).tolist() == versions
    assert all(one.manifest != two.manifest for one, two in zip(made.made, made.made[1:], strict=False))


def test_equal_neighbours_are_one_run() -> None:
    assert data_ref(ref(4), [2, 2, 1, 2]).made == [
        Made(manifest=2, rows=2),
        Made(manifest=1, rows=1),
        Made(manifest=2, rows=1),
    ]


def test_runs_that_do_not_add_up_are_named() -> None:
    wrong = DataRef(**ref(4).model_dump(), made=[Made(manifest=1, rows=3)])
    with pytest.raises(DatasetError, match=wrong.path):
        row_versions(wrong)
