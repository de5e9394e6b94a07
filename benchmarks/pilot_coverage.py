"""How often a pilot's ranges are right: simulated pilots of populations whose truth is known.

    python benchmarks/pilot_coverage.py                       # all, 200 pilots each: some minutes
    python benchmarks/pilot_coverage.py --pilots 50 --only lognormal

A population is prompts, answers and a server. The server gives every request in flight its
next id after sqrt(weights^2 + (load * requests)^2) seconds, which is not the estimator's model, each
request costs time for its prompt besides, and each answer's time has an error of its own. The truth of
the duration is list scheduling of all rows on the places in flight, to the end of the
longest answer. The pilot is a share of the rows, chosen as `draftmill pilot` chooses them, run on
the same server alone; the estimator sees its lengths and when each of its requests left and came.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from draftmill.pilot.draws import Range, Sample
from draftmill.pilot.estimate import draw
from draftmill.pilot.pace import fit
from draftmill.pilot.strata import strata, take

Floats = npt.NDArray[np.float64]

WEIGHTS_S, FULL_AT = 0.01, 60.0
"""Seconds an id with one request in flight; requests at which its load costs as much again."""

PROMPT_COST, REQUEST_COST = 0.05, 5.0
"""What an id of the prompt and a request cost, in generated ids."""

NOISE = 0.03
"""Of an answer's seconds, as a share."""


@dataclass(frozen=True, slots=True)
class Case:
    """`lengths`: of the answers to prompts of given lengths, in two variants (0 and 1)."""

    name: str
    rows: int
    lengths: Callable[[np.random.Generator, Floats, npt.NDArray[np.int64]], Floats]
    share: float = 0.05
    places: int = 64
    budget: int = 8192
    variants: bool = False


def lognormal(dice: np.random.Generator, prompts: Floats, _: npt.NDArray[np.int64]) -> Floats:
    return np.exp(dice.normal(6.3, 1.0, len(prompts)))


def bimodal(dice: np.random.Generator, prompts: Floats, _: npt.NDArray[np.int64]) -> Floats:
    """Half of the answers think, and nothing tells which beforehand."""
    thinks = dice.random(len(prompts)) < 0.5
    return np.where(thinks, np.exp(dice.normal(7.3, 0.7, len(prompts))), np.exp(dice.normal(4.8, 0.7, len(prompts))))


def by_variant(dice: np.random.Generator, prompts: Floats, variant: npt.NDArray[np.int64]) -> Floats:
    """The same where the variant decides."""
    return np.exp(dice.normal(np.where(variant == 1, 7.3, 4.8), 0.8))


def with_prompt(dice: np.random.Generator, prompts: Floats, _: npt.NDArray[np.int64]) -> Floats:
    """Long prompts have long answers."""
    return np.exp(6.3 + 0.6 * (np.log(prompts) - 5.5) / 0.8 + 0.8 * dice.normal(0.0, 1.0, len(prompts)))


CASES = (
    Case("lognormal", 4000, lognormal),
    Case("lognormal, 20,000 rows", 20_000, lognormal, places=256, budget=32_768),
    Case("lognormal, 2,000 rows, 10 %", 2000, lognormal, share=0.1),
    Case("half of them think", 5000, bimodal),
    Case("half of them think, told by the variant", 4000, by_variant, variants=True),
    Case("long prompts, long answers", 4000, with_prompt),
    Case("lognormal, cut at 1,024", 4000, lognormal, budget=1024),
)


@dataclass(frozen=True, slots=True)
class Pilot:
    """What one told of tokens and of seconds, beside the truth."""

    tokens: Range
    true_tokens: float
    seconds: Range
    true_seconds: float


def pilots(case: Case, number: int, *, draws: int) -> Iterator[Pilot]:
    """Each of a population of its own."""
    for seed in range(number):
        dice = np.random.default_rng([seed, case.rows])
        prompts = np.ceil(np.exp(dice.normal(5.5, 0.8, case.rows)))
        variant = (dice.random(case.rows) < 0.5).astype(np.int64) if case.variants else np.zeros(case.rows, np.int64)
        tokens = np.minimum(np.ceil(case.lengths(dice, prompts, variant)), case.budget)
        yield one(case, dice, prompts, variant, tokens, draws=draws)


def one(
    case: Case,
    dice: np.random.Generator,
    prompts: Floats,
    variant: npt.NDArray[np.int64],
    tokens: Floats,
    *,
    draws: int,
) -> Pilot:
    """One pilot of a population."""
    order = dice.permutation(case.rows)
    sample = round(case.rows * case.share)
    stratum = strata(variant, prompts.astype(np.int64), order, sample=sample)
    units = take(stratum, order, sample=sample)
    work = tokens + PROMPT_COST * prompts + REQUEST_COST
    _, came = served(work, case.places)
    sent_s, came_s = served(work[units], case.places)
    came_s = sent_s + (came_s - sent_s) * np.exp(dice.normal(0.0, NOISE, len(units)))
    pace = fit(sent_s, came_s, tokens[units], case.places)
    seen = Sample(stratum[units], tokens[units], prompts[units], np.bincount(stratum), float(case.budget))
    whole, _ = draw(seen, pace, case.places, prompt_ids=float(prompts.sum()), draws=draws)
    return Pilot(Range.of(whole.tokens), float(tokens.sum()), Range.of(whole.seconds), float(came.max()))


def served(work: Floats, places: int) -> tuple[Floats, Floats]:
    """When each request leaves and comes, in seconds: all in flight advance alike, the faster the fewer they are."""
    begun, ended = np.empty(len(work)), np.empty(len(work))
    free: list[float] = [0.0] * min(places, len(work))
    for number, job in enumerate(work.tolist()):
        begun[number] = free[0]
        ended[number] = free[0] + job
        heapq.heapreplace(free, ended[number])
    moments = np.concatenate([begun, ended])
    steps = np.concatenate([np.ones(len(work)), -np.ones(len(work))])
    by_time = np.lexsort((steps, moments))
    moments, load = moments[by_time], np.cumsum(steps[by_time])
    an_id_s = WEIGHTS_S * np.sqrt(1.0 + (load[:-1] / FULL_AT) ** 2)
    clock = np.concatenate([[0.0], np.cumsum(np.diff(moments) * an_id_s)])
    return np.interp(begun, moments, clock), np.interp(ended, moments, clock)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of many pilots: the share whose range has the truth, the median half-width, and the mean error, as shares."""

    right: float
    half_width: float
    error: float


def coverage(found: list[tuple[Range, float]]) -> Coverage:
    right = [told.low <= truth <= told.high for told, truth in found]
    widths = [(told.high - told.low) / 2 / told.middle for told, _ in found]
    errors = [told.middle / truth - 1 for told, truth in found]
    return Coverage(float(np.mean(right)), float(np.median(widths)), float(np.mean(errors)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilots", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", default="", help="beginning of a case's name")
    given = parser.parse_args()
    print("| population | rows | pilot | places | what | right | half-width | mean error |")
    print("|---|---:|---:|---:|---|---:|---:|---:|")
    for case in (each for each in CASES if each.name.startswith(given.only)):
        found = list(pilots(case, given.pilots, draws=given.draws))
        for what, pairs in (
            ("tokens", [(each.tokens, each.true_tokens) for each in found]),
            ("duration", [(each.seconds, each.true_seconds) for each in found]),
        ):
            seen = coverage(pairs)
            print(
                f"| {case.name} | {case.rows:,} | {round(case.rows * case.share):,} | {case.places} | {what} "
                f"| {seen.right:.1%} | {seen.half_width:.1%} | {seen.error:+.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
