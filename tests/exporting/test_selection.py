"""Which rows become examples, how long rows are cut, and that what is lost is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.exporting.masks import Mask, loss_mask, supervised
from draftmill.exporting.selection import Drafter, Dropped, Longer, Selection, Wish
from draftmill.records import Span, Thinking
from tests.exporting.conftest import STRUCTURES, Made

# 100 101 102 | 50 50 8 | 60 60 2
ROW = Made("a")


def select(row: Made, **wish: Any) -> tuple[Any, Selection]:
    selection = Selection(Wish(**wish))
    example = selection.example(row.columns, np.array(row.ids, np.int32), STRUCTURES[row.variant].thinking)
    return example, selection


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (Mask.COMPLETION, [0, 0, 0, 1, 1, 1, 1, 1, 1]),
        (Mask.REASONING, [0, 0, 0, 1, 1, 1, 0, 0, 0]),
        (Mask.CONTENT, [0, 0, 0, 0, 0, 0, 1, 1, 1]),
    ],
)
def test_a_row_as_it_is(mask: Mask, wanted: list[int]) -> None:
    example, selection = select(ROW, mask=mask)
    assert example.input_ids_T.tolist() == ROW.ids
    assert example.loss_mask_T.tolist() == wanted
    assert example.spans == (Span(3, 9, 5, "stop", 2),)
    assert not selection.losses.dropped


def test_a_long_row_is_cut_on_the_right_and_what_that_costs_is_counted() -> None:
    example, selection = select(ROW, max_length=7)
    assert example.input_ids_T.tolist() == ROW.ids[:7]
    assert example.loss_mask_T.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert example.spans == (Span(3, 7, 5, "length", None),)
    assert (selection.losses.cut, selection.losses.reasoning, selection.losses.content) == (1, 0, 2)
    example, selection = select(ROW, max_length=4)
    assert (example.reasoning_end, example.spans) == (None, (Span(3, 4, None, "length", None),))
    assert (selection.losses.reasoning, selection.losses.content) == (2, 3)
    _, selection = select(ROW, max_length=4, mask=Mask.REASONING)
    assert (selection.losses.reasoning, selection.losses.content) == (2, 0), "content is not learnt, so not lost"


def test_a_long_row_is_dropped_where_that_is_wished() -> None:
    example, selection = select(ROW, max_length=8, longer=Longer.DROP)
    assert example is None
    assert selection.losses.dropped == {Dropped.TOO_LONG: 1}
    assert (selection.losses.cut, selection.losses.reasoning, selection.losses.content) == (0, 3, 3)


@pytest.mark.parametrize(
    ("row", "wish", "reason"),
    [
        (Made("inside", content=None), {"mask": Mask.CONTENT}, Dropped.NOTHING_SUPERVISED),
        (Made("fast", reasoning=None, variant="fast"), {"mask": Mask.REASONING}, Dropped.NOTHING_SUPERVISED),
        (ROW, {"max_length": 3}, Dropped.NOTHING_SUPERVISED),
        (Made("short", content=0), {"mask": Mask.CONTENT, "drafter": Drafter.DFLASH}, Dropped.NO_SUPERVISED_PAIR),
        (ROW, {"max_length": 4, "drafter": Drafter.DFLASH}, Dropped.NO_SUPERVISED_PAIR),
    ],
)
def test_a_row_of_no_use_is_dropped_by_name(row: Made, wish: dict[str, Any], reason: Dropped) -> None:
    example, selection = select(row, **wish)
    assert example is None
    assert selection.losses.dropped == {reason: 1}


def test_one_supervised_id_is_enough_for_eagle() -> None:
    example, _ = select(Made("short", content=0), mask=Mask.CONTENT)
    assert example.loss_mask_T.sum() == 1


@given(
    reasoning=st.none() | st.integers(0, 6),
    content=st.none() | st.integers(0, 6),
    mask=st.sampled_from(Mask),
    max_length=st.integers(1, 20),
    longer=st.sampled_from(Longer),
)
def test_no_supervised_id_goes_missing(
    reasoning: Any, content: Any, mask: Mask, max_length: int, longer: Longer
) -> None:
    row = Made("any", reasoning=reasoning or 0, content=content)
    example, selection = select(row, mask=mask, max_length=max_length, longer=longer)
    thinking = Thinking.OPENED_BY_PROMPT
    whole = int(loss_mask(len(row.ids), supervised(row.columns["spans"], mask, thinking)).sum())
    kept = 0 if example is None else int(example.loss_mask_T.sum())
    losses = selection.losses
    assert kept + losses.reasoning + losses.content == whole
    assert (example is None) == (losses.dropped.total() == 1)
    if example is not None:
        assert len(example.input_ids_T) <= max_length
        assert all(span.end <= len(example.input_ids_T) for span in example.spans)
