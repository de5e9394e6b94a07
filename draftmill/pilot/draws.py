"""What the rows that nobody asked may come to: populations drawn from a stratified sample.

Each draw is one whole population that the sample could be of: the sampled units as
they are, and beside them, stratum by stratum, as many units as are left, drawn from the
sampled ones. Weights of the sampled units are drawn first (a Dirichlet whose
variance is that of the mean of a sample: Rubin 1981, with n - 1 in place of n + 1), so a
draw knows that the sample itself was chance; what is known stays known, so that
a sample of everything has no range.

A sample has not seen the longest answers of the whole. What is drawn of its longest
tenth is therefore drawn from the tail that these show (Pareto's, Hill 1975), up to the budget:
lengths of answers fall off like that, and the longest answer decides when a run ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DRAWS = 200
"""Populations: the 5th and 95th percentile are then known to about a tenth of the range."""

RANGE = (0.05, 0.95)
"""Of the draws: 90 % are inside."""

TAIL = 0.1
"""The share of the sample whose lengths show the tail."""

TAIL_AT_LEAST = 10
"""Units that must be in it; smaller samples keep to what they saw."""


STEEP = 50.0
"""A tail that falls off faster is as good as none: all long answers are of one length."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Units that came back: `stratum_n`, `tokens_n` (output), `prompt_n` (ids sent); `sizes_H`: units of each stratum,
    the sampled ones included; `budget`: the most tokens of one answer."""

    stratum_n: npt.NDArray[np.int64]
    tokens_n: npt.NDArray[np.float64]
    prompt_n: npt.NDArray[np.float64]
    sizes_H: npt.NDArray[np.int64]
    budget: float


@dataclass(frozen=True, slots=True)
class Range:
    """A number, and where it is with 90 % probability."""

    middle: float
    low: float
    high: float

    @staticmethod
    def of(values: npt.NDArray[np.float64]) -> Range:
        """Of one value a draw."""
        low, middle, high = np.quantile(values, [RANGE[0], 0.5, RANGE[1]])
        return Range(float(middle), float(low), float(high))

    @staticmethod
    def known(value: float) -> Range:
        return Range(value, value, value)

    def times(self, factor: float) -> Range:
        return Range(self.middle * factor, self.low * factor, self.high * factor)

    def plus(self, value: float) -> Range:
        return Range(self.middle + value, self.low + value, self.high + value)

    def to_json(self) -> dict[str, float]:
        return {"middle": self.middle, "low": self.low, "high": self.high}


def rest_of(sample: Sample, dice: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """One draw of the units that were not sampled: their output tokens and their prompt ids, in any order."""
    counts_n = np.zeros(len(sample.stratum_n), np.int64)
    for stratum, size in enumerate(sample.sizes_H):
        units = np.flatnonzero(sample.stratum_n == stratum)
        left = int(size) - len(units)
        if left <= 0:
            continue
        if len(units) < 2:  # too few came back to tell what the others of their kind are like: like all others
            units = np.arange(len(sample.stratum_n))
        # n * alpha + 1 = n - 1, so that the weighted mean spreads as the mean of n units does.
        alpha = max(len(units) - 2, 0.5) / len(units)
        counts_n[units] += dice.multinomial(left, dice.dirichlet(np.full(len(units), alpha)))
    tokens = np.repeat(sample.tokens_n, counts_n)
    return _with_tail(tokens, sample, dice), np.repeat(sample.prompt_n, counts_n)


def _with_tail(tokens: npt.NDArray[np.float64], sample: Sample, dice: np.random.Generator) -> npt.NDArray[np.float64]:
    """The same with the longest tenth of the sample spread out along its tail."""
    num_tail = int(len(sample.tokens_n) * TAIL)
    if num_tail < TAIL_AT_LEAST:
        return tokens
    ordered = np.sort(sample.tokens_n)
    start, longest = ordered[-num_tail - 1], ordered[-num_tail:]
    uncut = longest < sample.budget
    if start <= 0 or not uncut.any():
        return tokens
    # Hill's estimate for lengths that end at a budget: those that reached it count with the way they went.
    slope = uncut.sum() / max(float(np.log(longest / start).sum()), 1e-9)
    if slope <= 0 or slope > STEEP:
        return tokens
    # How steep a tail is that few units show is itself uncertain.
    slope *= dice.gamma(num_tail) / num_tail
    beyond = tokens > start
    spread = tokens.copy()
    spread[beyond] = np.minimum(start * dice.random(int(beyond.sum())) ** (-1.0 / slope), sample.budget)
    return spread
