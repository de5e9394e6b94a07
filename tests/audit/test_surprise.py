"""Rows sampled from whole distributions: chance is no suspicion, another model's ids are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.audit.surprise import surprise
from draftmill.recipe import Sampling
from draftmill.records import Scores

Head = Callable[..., Scores]
VOCABULARY = 200


def model(seed: int, length: int, sharpness: float = 4.0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, sharpness, (length, VOCABULARY))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def drawn(logprobs: np.ndarray, temperature: float, seed: int) -> list[int]:
    noise = np.random.default_rng(seed).gumbel(size=logprobs.shape)
    return [int(token_id) for token_id in (logprobs / temperature + noise).argmax(axis=1)]


@given(
    seed=st.integers(0, 10_000),
    sharpness=st.floats(0.1, 6),
    temperature=st.sampled_from([0.5, 1.0, 1.5]),
    top_p=st.sampled_from([0.5, 0.95, 1.0]),
    top_k=st.sampled_from([-1, 3, 40]),
    min_p=st.sampled_from([0.0, 0.1]),
)
def test_what_was_sampled_is_not_beyond_chance(
    head_of: Head, seed: int, sharpness: float, temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    how = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, max_new_tokens=1)
    logprobs = model(seed, 100, sharpness)
    dice = np.random.default_rng(seed + 1)
    scores = head_of(logprobs, [engine_draw(row, how, dice) for row in logprobs])
    assert not surprise(scores, how, vocabulary=VOCABULARY, tolerance=0).is_beyond_chance


def engine_draw(logprobs_V: np.ndarray, how: Sampling, dice: np.random.Generator) -> int:
    p = np.exp(logprobs_V / how.temperature)
    order = np.argsort(-p)
    kept = order[: how.top_k] if how.top_k > 0 else order
    q = p[kept] / p[kept].sum()
    kept = kept[(np.cumsum(q) - q <= how.top_p) & (p[kept] >= how.min_p * p.max())]
    return int(dice.choice(kept, p=p[kept] / p[kept].sum()))


@given(seed=st.integers(0, 10_000), sharpness=st.floats(0.1, 4), top_p=st.sampled_from([0.5, 0.95, 1.0]))
def test_the_mean_of_the_evidence_of_one_id_is_at_most_one(
    head_of: Head, seed: int, sharpness: float, top_p: float
) -> None:
    how = Sampling(temperature=1, top_p=top_p, max_new_tokens=1)
    row = model(seed, 1, sharpness)
    p = np.exp(row[0])
    order = np.argsort(-p)
    kept = order[np.cumsum(p[order]) - p[order] <= top_p]
    evidence = [gain(head_of(row, [int(token_id)]), how) for token_id in kept]
    assert np.average(np.exp(evidence), weights=p[kept]) <= 1 + 1e-9


def gain(scores: Scores, how: Sampling) -> float:
    return surprise(scores, how, vocabulary=VOCABULARY, tolerance=0).evidence


@pytest.mark.parametrize("seed", range(5))
def test_a_stretch_of_another_model_is_found_where_it_is(head_of: Head, seed: int) -> None:
    logprobs = model(seed, 400)
    ids = drawn(logprobs, 1.0, seed)
    ids[200:215] = drawn(model(seed + 1000, 15), 1.0, seed)
    found = surprise(head_of(logprobs, ids), Sampling(temperature=1, top_p=1, max_new_tokens=1), vocabulary=VOCABULARY)
    assert found.is_beyond_chance
    assert 195 <= found.start <= 205
    assert 210 <= found.end <= 220


def test_an_id_without_any_probability_is_enough(head_of: Head) -> None:
    logprobs = model(1, 10)
    ids = drawn(logprobs, 1.0, 1)
    scores = head_of(logprobs, ids)
    chosen = scores.chosen_S.copy()
    chosen[4] = -np.inf
    found = surprise(
        Scores(chosen, scores.top_ids_SK, scores.top_logprobs_SK),
        Sampling(temperature=1, top_p=1, max_new_tokens=1),
        vocabulary=VOCABULARY,
    )
    assert found.is_beyond_chance
    assert found.start <= 4 < found.end
