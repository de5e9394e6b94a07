"""Sampled ids that were all possible: how often may unlikely ones come? Pure.

Of ids drawn from q, cut down to what the filters let through (a mass of Z), q(x)^-s has a mean of M = sum of
q(y)^(1-s) over those let through, by Z. So the product of q(x)^-s / M over a stretch of a row has a mean of at most 1,
and exceeds B with a probability of at most 1/B (Ville). A stretch that does is no chance: the test holds for every
vocabulary and any text, and has no threshold found by trying. What the returned list leaves open is bounded in favour
of the row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from draftmill.arrays import Logprobs
from draftmill.audit.positions import NEAR_TIE_NATS, Mask, Tempered, tempered
from draftmill.recipe import Sampling
from draftmill.records import Scores

POWER = 0.5
"""s: between 0 and 1. Half of each: a strange id weighs much, and M stays small where the model is sure."""

FALSE_ALARMS = 1e-5
"""Of rows that are the model's own, at most, whatever their length: of an audit of 100 rows one in a thousand."""

CERTAIN = 1e6
"""Nats of evidence of an id without any probability: enough alone, and finite."""


@dataclass(frozen=True, slots=True)
class Surprise:
    """The stretch [start, end) of S positions that is the least like the model: `evidence` in nats, and how much of it
    is no longer chance."""

    start: int
    end: int
    evidence: float
    bound: float

    @property
    def is_beyond_chance(self) -> bool:
        return self.evidence > self.bound


def surprise(
    scores: Scores, sampling: Sampling, *, vocabulary: int | None = None, tolerance: float = NEAR_TIE_NATS
) -> Surprise:
    """The most surprising stretch of a row of S > 0 ids that were sampled at a temperature above 0, without
    penalties."""
    weights = tempered(scores, sampling.temperature, vocabulary)
    first_S = scores.top_logprobs_SK[:, 0]
    # As likely as it can have been, and M as large as it can be: whatever is unknown speaks for the row.
    least_whole_S = np.log(weights.least_whole_S)
    log_q_S = np.minimum(0.0, (scores.chosen_S - first_S) / sampling.temperature - least_whole_S)
    through_SK, unlisted_S = _let_through(weights, sampling, tolerance)
    kept = 1 - POWER
    sums_S = (np.where(through_SK, weights.listed_SK, 0.0) ** kept).sum(axis=1)
    sums_S += np.where(unlisted_S, weights.most_S**kept * weights.unlisted**POWER, 0.0)
    log_m_S = np.log(sums_S) - kept * least_whole_S - np.log(_least_mass(weights, sampling))
    return _largest_stretch(-POWER * log_q_S - log_m_S)


def _let_through(weights: Tempered, sampling: Sampling, tolerance: float) -> tuple[Mask, Mask]:
    """Which listed ids may have passed the filters, and where unlisted ones may have."""
    listed = weights.listed_SK
    slack = math.exp(-tolerance / sampling.temperature)
    before = np.cumsum(listed, axis=1) - listed
    all_before = np.column_stack([before, listed.sum(axis=1)])  # the last: before any unlisted id
    shrunk = all_before * slack
    rest = np.maximum(0.0, weights.most_whole_S[:, None] - all_before)
    through = shrunk <= sampling.top_p * (shrunk + rest)
    if sampling.top_k > 0:
        through &= np.arange(through.shape[1]) < sampling.top_k
    through &= np.column_stack([listed, listed[:, -1]]) >= sampling.min_p * slack
    return through[:, :-1], through[:, -1]


def _least_mass(weights: Tempered, sampling: Sampling) -> Logprobs:
    """Of what the filters let through, at least: each keeps a head of the order, top_p at least its share of it."""
    head = weights.listed_SK >= sampling.min_p
    if sampling.top_k > 0:
        head = head & (np.arange(head.shape[1]) < sampling.top_k)
    cut = sampling.top_k > 0 or sampling.min_p > 0
    mass_S = np.where(head, weights.listed_SK, 0.0).sum(axis=1) / weights.most_whole_S if cut else 1.0
    return np.asarray(min(1.0, sampling.top_p) * mass_S)


def _largest_stretch(gains_S: Logprobs) -> Surprise:
    sums = np.concatenate(([0.0], np.cumsum(np.minimum(gains_S, CERTAIN))))
    least = np.minimum.accumulate(sums[:-1])
    end = int(np.argmax(sums[1:] - least)) + 1
    start = int(np.argmin(sums[:end]))
    # A row of S ids has as many beginnings of a stretch: each gets its share of the chance.
    return Surprise(start, end, float(sums[end] - sums[start]), math.log(len(gains_S) / FALSE_ALARMS))
