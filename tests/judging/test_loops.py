"""Exact cycles at the end, told from repetition that goes on."""

from __future__ import annotations

import numpy as np
import pytest

from draftmill.arrays import flatten, ids_array
from draftmill.judging import loops
from draftmill.judging.loops import AUTO_BOUND, long_cycle_starts, long_ids, period_of, short_cycle_starts


def looping(*rows: list[int], bound: int = AUTO_BOUND) -> list[bool]:
    return [start >= 0 for start in starts(*rows, bound=bound)]


def starts(*rows: list[int], bound: int = AUTO_BOUND) -> list[int]:
    """Where in its row each loop begins, by the rule for short cycles or the one for long ones; -1 for none."""
    ids_T, offsets_B1 = flatten(ids_array("o", row) for row in rows)
    short_B = short_cycle_starts(ids_T, offsets_B1[:-1], offsets_B1[1:], bound=bound)
    at_B = np.where(short_B < 0, long_cycle_starts(ids_T, offsets_B1[:-1], offsets_B1[1:], bound=bound), short_B)
    return np.where(at_B < 0, -1, at_B - offsets_B1[:-1]).tolist()


def cycle(period: int, num_ids: int) -> list[int]:
    """`num_ids` ids that repeat `range(period)` and end with a whole one."""
    return [(index - num_ids) % period for index in range(num_ids)]


@pytest.mark.parametrize("period", [1, 2, 3, 31, 32])
def test_short_cycles(period: int) -> None:
    row = cycle(period, 256)
    assert starts([900, *row], row[1:], [*row, 900]) == [1, -1, -1]


@pytest.mark.parametrize(("period", "needed"), [(33, 1024), (34, 1024), (256, 1024), (257, 1028), (512, 2048)])
def test_long_cycles_cover_1024_ids_and_four_rounds(period: int, needed: int) -> None:
    row = cycle(period, needed)
    assert starts([900, *row], row, row[1:], [*row, 900]) == [1, 0, -1, -1]


def test_a_cycle_of_more_than_512_ids_is_no_loop() -> None:
    assert looping(cycle(513, 8 * 513)) == [False]


def test_one_other_id_inside_breaks_a_long_cycle() -> None:
    row = cycle(100, 1024)
    assert looping(*([*row[:at], 900, *row[at + 1 :]] for at in (0, 500, 1023))) == [False] * 3


def test_a_long_cycle_that_has_short_ones_inside() -> None:
    """Its last ids stand at several distances before: each is tried."""
    paragraph = [1, 2] * 40 + [3] + [1, 2] * 40
    assert starts(paragraph * 9) == [len(paragraph) * 9 - 1024]


def test_a_table_of_digits_is_no_loop() -> None:
    rows = [[number, 800, number * number, 801] for number in range(600)]
    assert looping([i for row in rows for i in row]) == [False]


@pytest.mark.parametrize(("bound", "wanted"), [(16, True), (17, False)])
def test_the_recipes_bound(bound: int, wanted: bool) -> None:
    assert looping([5] * 16, bound=bound) == [wanted]


def test_a_small_bound_still_wants_eight_repeats() -> None:
    assert looping([1, 2] * 8, [1, 2, 3] * 6, bound=16) == [True, False]


@pytest.mark.parametrize(("bound", "wanted"), [(16, 1024), (256, 1024), (257, 1028), (1000, 4000)])
def test_a_bound_above_auto_lengthens_what_a_long_loop_must_cover(bound: int, wanted: int) -> None:
    assert long_ids(bound) == wanted
    assert looping(cycle(40, wanted), cycle(40, wanted - 1), bound=bound) == [True, False]


@pytest.mark.parametrize("window_ids", [1, 40, 2048])
def test_many_rows_in_several_goes(monkeypatch: pytest.MonkeyPatch, window_ids: int) -> None:
    monkeypatch.setattr(loops, "WINDOW_IDS", window_ids)
    rows = [cycle(1 + 7 * number, 1100) if number % 3 else list(range(1100)) for number in range(10)]
    assert looping(*rows) == [number % 3 > 0 for number in range(10)]


def test_the_window_lies_inside_its_row() -> None:
    assert looping([5] * 10, [5] * 10, bound=16) == [False, False]
    assert looping(cycle(60, 600), cycle(60, 600)) == [False, False]
    assert looping() == []


@pytest.mark.parametrize(("ids", "period"), [([1, 2, 1, 2, 1], 2), ([7, 7, 7], 1), ([1, 2, 3], None), ([], None)])
def test_the_period_of_ids(ids: list[int], period: int | None) -> None:
    assert period_of(np.array(ids, np.int32)) == period
