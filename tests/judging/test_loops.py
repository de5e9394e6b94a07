"""Loops at the end, told from repetition that goes on."""

from __future__ import annotations

import numpy as np
import pytest

from draftmill.arrays import flatten, ids_array
from draftmill.judging import loops
from draftmill.judging.loops import degenerate


def looping(*rows: list[int], bound: object = "auto") -> list[bool]:
    ids_T, offsets_B1 = flatten(ids_array("o", row) for row in rows)
    return degenerate(ids_T, offsets_B1[:-1], offsets_B1[1:], bound=bound).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize("period", [1, 2, 3, 31, 32])
def test_cycles_up_to_the_longest(period: int) -> None:
    cycle = list(range(period))
    row = (cycle * 300)[:256]
    assert looping([900, *row], row[1:], [*row, 900]) == [True, False, False]


def test_a_longer_cycle_is_no_loop() -> None:
    assert looping(list(range(33)) * 40) == [False]


def test_a_table_of_digits_is_no_loop() -> None:
    rows = [[number, 800, number * number, 801] for number in range(200)]
    assert looping([i for row in rows for i in row]) == [False]


@pytest.mark.parametrize(("bound", "wanted"), [(16, True), (17, False), ("off", False)])
def test_the_recipes_bound(bound: object, wanted: bool) -> None:
    assert looping([5] * 16, bound=bound) == [wanted]


def test_a_small_bound_still_wants_eight_repeats() -> None:
    assert looping([1, 2] * 8, [1, 2, 3] * 6, bound=16) == [True, False]


def test_many_rows_in_several_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "WINDOW_IDS", 40)
    rows = [[5] * 20 if number % 3 else list(range(20)) for number in range(10)]
    assert looping(*rows, bound=16) == [number % 3 > 0 for number in range(10)]


def test_the_window_lies_inside_its_row() -> None:
    assert looping([5] * 10, [5] * 10, bound=16) == [False, False]
    assert np.asarray(looping(bound=16)).size == 0
