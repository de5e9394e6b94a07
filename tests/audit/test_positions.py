"""Positions against the truth: whole distributions, sampled as engines sample, of which only the head is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.audit.positions import Outcome, behind_first, is_greedy, outcomes, tempered
from draftmill.recipe import Sampling
from draftmill.records import Scores

VOCABULARY = 60

Head = Callable[..., Scores]


def sampling(**changes: Any) -> Sampling:
    return Sampling(**{"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8} | changes)


def distributions(seed: int, sharpness: float, size: int = 8) -> np.ndarray:
    """Log-probabilities at temperature 1: (size, VOCABULARY)."""
    logits = np.random.default_rng(seed).normal(0, sharpness, (size, VOCABULARY))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def let_through(logprobs_V: np.ndarray, how: Sampling) -> set[int]:
    """The ids an engine can sample: temperature, then top_k, top_p of what is left, min_p."""
    p = np.exp(logprobs_V / how.temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    kept = order[: how.top_k] if how.top_k > 0 else order
    q = p[kept] / p[kept].sum()
    before = np.cumsum(q) - q
    kept = kept[(before <= how.top_p) & (p[kept] >= how.min_p * p.max())]
    return {int(token_id) for token_id in kept}


HOW = st.builds(
    sampling,
    temperature=st.sampled_from([0.3, 0.6, 1.0, 1.5]),
    top_p=st.sampled_from([0.3, 0.8, 0.95, 1.0]),
    top_k=st.sampled_from([-1, 1, 5, 20, 40]),
    min_p=st.sampled_from([0.0, 0.01, 0.2]),
)


@given(seed=st.integers(0, 10_000), sharpness=st.floats(0.1, 6), how=HOW, top=st.sampled_from([5, 20, VOCABULARY]))
def test_what_could_be_sampled_is_never_outside(
    head_of: Head, seed: int, sharpness: float, how: Sampling, top: int
) -> None:
    logprobs = distributions(seed, sharpness)
    dice = np.random.default_rng(seed + 1)
    chosen = [int(dice.choice(sorted(let_through(row, how)))) for row in logprobs]
    # Without any tolerance: the bounds alone must not accuse. Rounding at the very edge is what 1e-9 is for.
    found = outcomes(head_of(logprobs, chosen, top), how, vocabulary=VOCABULARY, tolerance=1e-9)
    assert Outcome.OUTSIDE not in found


@given(seed=st.integers(0, 10_000), sharpness=st.floats(0.5, 6), how=HOW)
def test_with_the_whole_distribution_nothing_is_undecided_and_what_is_clearly_outside_is_found(
    head_of: Head, seed: int, sharpness: float, how: Sampling
) -> None:
    logprobs = distributions(seed, sharpness)
    least = [int(row.argmin()) for row in logprobs]
    found = outcomes(head_of(logprobs, least, VOCABULARY), how, vocabulary=VOCABULARY, tolerance=1e-9)
    assert Outcome.UNDECIDED not in found
    alone = how.model_copy(update={"top_k": -1}) if how.top_p < 1 and how.top_k > 1 else how
    outside = [least[n] not in let_through(row, alone) for n, row in enumerate(logprobs)]
    assert all(outcome == Outcome.OUTSIDE for outcome, out in zip(found, outside, strict=True) if out)


@given(seed=st.integers(0, 1000), nats=st.floats(0, 0.2))
def test_noise_within_half_the_tolerance_accuses_nobody(head_of: Head, seed: int, nats: float) -> None:
    how = sampling(top_p=0.9, top_k=20, min_p=0.02)
    logprobs = distributions(seed, 3)
    dice = np.random.default_rng(seed)
    chosen = [int(dice.choice(sorted(let_through(row, how)))) for row in logprobs]
    noisy = logprobs + dice.uniform(-nats, nats, logprobs.shape)
    noisy -= np.log(np.exp(noisy).sum(axis=1, keepdims=True))
    assert Outcome.OUTSIDE not in outcomes(head_of(noisy, chosen), how, vocabulary=VOCABULARY, tolerance=0.5)


def test_a_greedy_row_is_the_first_choice_up_to_near_ties(head_of: Head) -> None:
    logprobs = np.log(np.array([[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.5, 0.4, 0.1]]))
    scores = head_of(logprobs, [0, 1, 2], 3)
    greedy = sampling(temperature=0)
    assert is_greedy(greedy)
    assert is_greedy(sampling(top_k=1))
    assert not is_greedy(sampling(temperature=0.1))
    assert outcomes(scores, greedy).tolist() == [Outcome.INSIDE, Outcome.INSIDE, Outcome.OUTSIDE]
    assert outcomes(scores, greedy, tolerance=0.1).tolist() == [Outcome.INSIDE, Outcome.OUTSIDE, Outcome.OUTSIDE]
    assert behind_first(scores) == pytest.approx([0, np.log(5 / 4), np.log(5)])


def test_an_id_beyond_the_list_is_undecided_while_the_list_is_not_the_whole_nucleus(head_of: Head) -> None:
    flat = np.full((1, VOCABULARY), -np.log(VOCABULARY))
    scores = head_of(flat, [VOCABULARY - 1], 20)
    assert outcomes(scores, sampling(top_p=0.95), vocabulary=VOCABULARY, tolerance=0).tolist() == [Outcome.INSIDE]
    peaked = np.log(np.r_[np.full(20, 0.9 / 20), np.full(40, 0.1 / 40)])[None]
    scores = head_of(peaked, [59], 20)
    assert outcomes(scores, sampling(top_p=0.95), vocabulary=VOCABULARY).tolist() == [Outcome.UNDECIDED]
    assert outcomes(scores, sampling(top_p=0.5), vocabulary=VOCABULARY).tolist() == [Outcome.OUTSIDE]
    far = np.log(np.r_[np.full(20, 0.9 / 20), np.full(39, (0.1 - 1e-6) / 39), 1e-6])[None]
    scores = head_of(far, [59], 20)  # so unlikely that all unlisted ids together would be, were they no likelier
    assert outcomes(scores, sampling(top_p=0.95), vocabulary=VOCABULARY).tolist() == [Outcome.OUTSIDE]
    scores = head_of(peaked, [59], 20)
    assert outcomes(scores, sampling(top_k=30), vocabulary=VOCABULARY).tolist() == [Outcome.UNDECIDED]
    assert outcomes(scores, sampling(top_k=20), vocabulary=VOCABULARY).tolist() == [Outcome.OUTSIDE]


@pytest.mark.parametrize("penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_penalties_leave_everything_undecided(head_of: Head, penalty: str, temperature: float) -> None:
    scores = head_of(distributions(1, 6), [0] * 8)
    how = sampling(temperature=temperature, top_p=0.5, **{penalty: 1.25})
    assert set(outcomes(scores, how).tolist()) == {Outcome.UNDECIDED}


@given(seed=st.integers(0, 1000), sharpness=st.floats(0.1, 8), temperature=st.sampled_from([0.2, 0.7, 1.0, 1.4, 2.0]))
def test_the_weight_of_what_is_not_listed_is_within_its_bounds(
    head_of: Head, seed: int, sharpness: float, temperature: float
) -> None:
    logprobs = distributions(seed, sharpness)
    weights = tempered(head_of(logprobs, [0] * 8), temperature, VOCABULARY)
    whole = np.exp((logprobs - logprobs.max(axis=1, keepdims=True)) / temperature).sum(axis=1)
    assert (weights.least_whole_S <= whole * (1 + 1e-6)).all()
    assert (whole <= weights.most_whole_S * (1 + 1e-6)).all()
