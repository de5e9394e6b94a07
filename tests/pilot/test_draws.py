"""Populations drawn from a sample: as many as are left, within what lengths can be, and none where all is known."""

from __future__ import annotations

import numpy as np
import pytest

from draftmill.pilot.draws import Range, Sample, rest_of

BUDGET = 4096.0


def sample(number: int, *, of: int, seed: int = 1, sigma: float = 1.0) -> Sample:
    dice = np.random.default_rng(seed)
    tokens = np.minimum(np.ceil(dice.lognormal(5, sigma, number)), BUDGET)
    stratum = np.arange(number) % 4
    return Sample(stratum, tokens, np.full(number, 10.0), np.bincount(np.arange(of) % 4), BUDGET)


def test_a_draw_has_the_units_that_are_left() -> None:
    tokens, prompts = rest_of(sample(80, of=1000), np.random.default_rng(2))
    assert (len(tokens), len(prompts)) == (920, 920)
    assert tokens.min() >= 1
    assert tokens.max() <= BUDGET


def test_where_everything_is_known_nothing_is_left() -> None:
    tokens, _ = rest_of(sample(80, of=80), np.random.default_rng(2))
    assert len(tokens) == 0
    assert Range.known(3.0) == Range(3.0, 3.0, 3.0)


def test_means_of_draws_spread_as_means_of_samples_do() -> None:
    seen = sample(200, of=100_000, sigma=0.3)
    dice = np.random.default_rng(3)
    means = [rest_of(seen, dice)[0].mean() for _ in range(400)]
    within = np.mean([seen.tokens_n[seen.stratum_n == each].var(ddof=1) for each in range(4)])
    assert np.std(means) == pytest.approx(np.sqrt(within / 200), rel=0.2)
    assert np.mean(means) == pytest.approx(seen.tokens_n.mean(), rel=0.02)


def test_the_longest_of_the_whole_are_longer_than_the_longest_seen() -> None:
    seen = sample(100, of=5000, seed=4)
    dice = np.random.default_rng(4)
    longest = [rest_of(seen, dice)[0].max() for _ in range(50)]
    assert np.median(longest) > seen.tokens_n.max()
    assert max(longest) <= BUDGET


def test_a_small_sample_keeps_to_what_it_saw() -> None:
    seen = sample(20, of=500)
    tokens, _ = rest_of(seen, np.random.default_rng(5))
    assert set(tokens.tolist()) <= set(seen.tokens_n.tolist())


def test_a_stratum_of_which_nothing_came_back_is_not_made_up() -> None:
    seen = sample(40, of=400)
    kept = seen.stratum_n != 0
    less = Sample(seen.stratum_n[kept], seen.tokens_n[kept], seen.prompt_n[kept], seen.sizes_H, BUDGET)
    tokens, _ = rest_of(less, np.random.default_rng(6))
    assert len(tokens) == 400 - 30, "its units are drawn from all others"
