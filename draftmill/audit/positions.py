"""Which ids could not have been sampled, from the log-probabilities of the likeliest. Pure.

An id is OUTSIDE when no distribution that fits the returned list, and no logits within
the tolerance of those returned, would have let it through: what the list leaves out
is bounded from both sides, never guessed. UNDECIDED is what the bounds leave open.

The order of the filters is the engines': temperature first, then top_k, top_p and min_p. Each is
tested alone; top_p over what top_k has left would only let less through.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from draftmill.arrays import Logprobs
from draftmill.recipe import Sampling
from draftmill.records import Scores

NEAR_TIE_NATS = 0.5
"""Nats. Two logits that a prefill and a decode compute differently can change places within this: at a size of 16 to 32
bfloat16 has steps of 0.125, and each may be off by two. Measured (benchmarks/audit_proof.py): of 2,434 greedy ids, in
float32 and in bfloat16, none was behind the first choice, and each damaged row had an id more than 4 nats behind."""

GREEDY_BELOW = 1e-6
"""Temperatures below this are greedy for the engines, too."""

LARGEST_VOCABULARY = 1 << 19
"""Ids. What bounds the unlisted ones where the model's vocabulary is not known: no model has more."""


class Outcome(IntEnum):
    """What is known of one position."""

    INSIDE = 0
    OUTSIDE = 1
    UNDECIDED = 2


Outcomes = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]


def is_greedy(sampling: Sampling) -> bool:
    """Whether the likeliest id was always taken."""
    return sampling.temperature < GREEDY_BELOW or sampling.top_k == 1


def is_penalized(sampling: Sampling) -> bool:
    """Whether ids were made more or less likely by those before them, so that log-probabilities do not tell."""
    return (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1, 0, 0)


def outcomes(
    scores: Scores, sampling: Sampling, *, vocabulary: int | None = None, tolerance: float = NEAR_TIE_NATS
) -> Outcomes:
    """Of each of S positions. `vocabulary`: ids of the model, None when unknown; `tolerance` in nats."""
    if is_penalized(sampling):
        return np.full(len(scores.chosen_S), Outcome.UNDECIDED, np.int8)
    if is_greedy(sampling):
        return np.where(behind_first(scores) > tolerance, Outcome.OUTSIDE, Outcome.INSIDE).astype(np.int8)
    tests = [
        _top_p(scores, sampling, vocabulary, tolerance),
        _top_k(scores, sampling, tolerance),
        _min_p(scores, sampling, tolerance),
    ]
    outside = np.logical_or.reduce([test.outside for test in tests])
    maybe = np.logical_or.reduce([test.maybe for test in tests])
    return np.select([outside, maybe], [Outcome.OUTSIDE, Outcome.UNDECIDED], Outcome.INSIDE).astype(np.int8)


def behind_first(scores: Scores) -> Logprobs:
    """Nats by which each id is less likely than the first choice."""
    gap_S: Logprobs = np.maximum(0.0, scores.top_logprobs_SK[:, 0] - scores.chosen_S)
    return gap_S


@dataclass(frozen=True, slots=True)
class Tempered:
    """Weights at the sampling temperature, relative to the first choice's: of the listed ids, and between which bounds
    all unlisted ones together lie. `unlisted`: how many those are at most."""

    listed_SK: Logprobs
    least_S: Logprobs
    most_S: Logprobs
    unlisted: int

    @property
    def least_whole_S(self) -> Logprobs:
        return np.asarray(self.listed_SK.sum(axis=1) + self.least_S)

    @property
    def most_whole_S(self) -> Logprobs:
        return np.asarray(self.listed_SK.sum(axis=1) + self.most_S)


def tempered(scores: Scores, temperature: float, vocabulary: int | None) -> Tempered:
    """p^(1/T) of the listed ids, and bounds for the rest: N ids of mass R together, none likelier than the last listed.

    With a = 1/T, by convexity: all of R in as few ids as can be, or spread over N.
    """
    a = 1 / temperature
    top = scores.top_logprobs_SK
    first_S, last_S = top[:, 0], np.where(np.isfinite(top), top, np.inf).min(axis=1)
    rest_S = np.maximum(0.0, 1 - np.exp(top).sum(axis=1))
    unlisted = max(1, (vocabulary or LARGEST_VOCABULARY) - top.shape[1])
    with np.errstate(divide="ignore"):
        few_S = np.exp(np.log(rest_S) + (a - 1) * last_S - a * first_S)
        spread_S = np.exp(a * np.log(rest_S) + (1 - a) * np.log(unlisted) - a * first_S)
    return Tempered(
        np.exp(a * (top - first_S[:, None])), np.minimum(few_S, spread_S), np.maximum(few_S, spread_S), unlisted
    )


@dataclass(frozen=True, slots=True)
class _Test:
    """`outside`: surely; `maybe`: not surely inside."""

    outside: Mask
    maybe: Mask


def _likelier(scores: Scores, tolerance: float) -> Mask:
    """Which listed ids are likelier than the chosen one, beyond the tolerance."""
    return np.asarray(scores.top_logprobs_SK > (scores.chosen_S + tolerance)[:, None])


def _listed(scores: Scores) -> Mask:
    """Where every id likelier than the chosen one is listed."""
    return np.asarray(scores.chosen_S >= scores.top_logprobs_SK.min(axis=1))


def _top_p(scores: Scores, sampling: Sampling, vocabulary: int | None, tolerance: float) -> _Test:
    """An id is let through while those likelier than it have no more than top_p together."""
    if sampling.top_p >= 1:
        nowhere = np.zeros(len(scores.chosen_S), np.bool_)
        return _Test(nowhere, nowhere)
    weights = tempered(scores, sampling.temperature, vocabulary)
    likelier = _likelier(scores, tolerance)
    before_S = np.where(likelier, weights.listed_SK, 0.0).sum(axis=1)
    shift = np.exp(tolerance / sampling.temperature)

    def beyond(before_S: Logprobs, rest_S: Logprobs) -> Mask:
        # The likelier ones by the whole tolerance less likely than returned: odds shrink by exp(-tolerance/T).
        shrunk_S = np.maximum(0.0, before_S) / shift
        return np.asarray(shrunk_S > sampling.top_p * (shrunk_S + np.maximum(0.0, rest_S)))

    # From the other side: at most all unlisted ids are as likely as this one, which is nothing where it is far down.
    chosen_S = np.exp((scores.chosen_S - scores.top_logprobs_SK[:, 0]) / sampling.temperature)
    behind_S = np.where(likelier, 0.0, weights.listed_SK).sum(axis=1) + weights.unlisted * chosen_S * shift
    outside = beyond(before_S, weights.most_whole_S - before_S) | beyond(weights.least_whole_S - behind_S, behind_S)
    return _Test(outside, beyond(before_S, weights.least_whole_S - before_S) | ~_listed(scores))


def _top_k(scores: Scores, sampling: Sampling, tolerance: float) -> _Test:
    k = sampling.top_k
    outside = _likelier(scores, tolerance).sum(axis=1) >= k if k > 0 else np.zeros(len(scores.chosen_S), np.bool_)
    unknown = k > scores.top_logprobs_SK.shape[1]
    return _Test(outside, outside | (~_listed(scores) if unknown else np.False_))


def _min_p(scores: Scores, sampling: Sampling, tolerance: float) -> _Test:
    if sampling.min_p <= 0:
        outside = np.zeros(len(scores.chosen_S), np.bool_)
    else:
        outside = behind_first(scores) > tolerance - sampling.temperature * np.log(sampling.min_p)
    return _Test(outside, outside)
