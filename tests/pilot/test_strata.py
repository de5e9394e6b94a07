"""The sample: every unit at most once, each variant and each length with its share, the same in every run."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftmill.pilot.strata import ROWS_AT_MOST, default_rows, strata, take, units_for


def population(seed: int, number: int, variants: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    dice = np.random.default_rng(seed)
    return dice.integers(0, variants, number), dice.integers(1, 500, number), dice.permutation(number)


@given(st.integers(0, 9), st.integers(1, 300), st.integers(1, 3), st.integers(1, 300))
def test_a_sample_is_of_the_population_and_even_over_its_strata(seed, number, variants, sample) -> None:
    variant, length, order = population(seed, number, variants)
    stratum = strata(variant, length, order, sample=sample)
    units = take(stratum, order, sample=sample)
    assert len(set(units.tolist())) == len(units)
    sizes, taken = np.bincount(stratum), np.bincount(stratum[units], minlength=stratum.max() + 1)
    assert (taken >= np.minimum(sizes, 2)).all()
    share = min(1.0, sample / number)
    assert (np.abs(taken - sizes * share) <= 2).all()
    assert (np.diff(order[units]) > 0).all()


def test_strata_are_of_one_variant_and_of_neighbouring_lengths() -> None:
    variant, length, order = population(1, 1000, 2)
    stratum = strata(variant, length, order, sample=200)
    assert len(set(stratum.tolist())) in (9, 10)
    for each in range(stratum.max() + 1):
        assert len(set(variant[stratum == each].tolist())) == 1
    for one in (0, 1):
        mine = sorted(set(stratum[variant == one].tolist()))
        longest = [length[stratum == each].max() for each in mine]
        shortest = [length[stratum == each].min() for each in mine]
        assert all(high <= low for high, low in zip(longest[:-1], shortest[1:], strict=True))


def test_a_sample_does_not_depend_on_the_order_of_the_source() -> None:
    variant, length, order = population(2, 400, 2)
    mixed = np.random.default_rng(3).permutation(400)
    first = take(strata(variant, length, order, sample=60), order, sample=60)
    other = take(strata(variant[mixed], length[mixed], order[mixed], sample=60), order[mixed], sample=60)
    assert order[first].tolist() == order[mixed][other].tolist()


def test_how_many_rows_are_enough() -> None:
    assert default_rows(1_000_000, 64) == 200
    assert default_rows(1_000_000, 1024) == 2048
    assert default_rows(50, 64) == 50
    assert default_rows(10**7, 10**6) == ROWS_AT_MOST
    assert units_for(30, num_units=100, num_rows=300) == 10
    assert units_for(30, num_units=5, num_rows=5) == 5
