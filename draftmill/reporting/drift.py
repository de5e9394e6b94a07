"""Is last night's data like the night's before? Jumps between two manifests' statistics, each as a sentence.

Compared are fresh rows with fresh rows (see dataset/statistics.py), variant by
variant, so that no other mix of variants looks like other answers. A jump is
told when it is large enough to matter and too large for chance; both bounds are
below. Pure: numbers in, sentences out. The sentences name both numbers, a
likely cause and where to look; nothing is decided by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from draftmill.dataset.statistics import Lengths, Numbers, Statistics
from draftmill.generation.causes import likely_cause
from draftmill.records import OF_AN_ANSWER, Reason
from draftmill.reporting.drift_table import number

LENGTH_FACTOR = 1.5
"""A mean length within 1/1.5 and 1.5 of the last one is a matter of other prompts."""

SHARE_POINTS = 0.02
"""Two rows in a hundred: what a share must move by to be worth a person's morning."""

SURE = 4.0
"""Standard errors between two numbers: of some 30 comparisons a night, chance alone reaches it once in a year or so."""

LEAST = 30
"""Rows, answers or prompts on either side: below, a mean of long-tailed lengths and its error mean little."""


_TOO_LONG = (
    "longer answers than sampling.max_new_tokens was made for, or was it lowered? raise it (only these rows are asked "
    "again), or ask on with on_truncated: continue"
)


@dataclass(frozen=True, slots=True)
class Jump:
    """One number that moved too far. `what` names it; shares are 0 to 1, lengths in ids; `text` says it to people.

    For a variant's share of the prompts, `before` is the recipe's share.
    """

    variant: str
    what: str
    before: float
    now: float
    text: str


def drift(now: Statistics, before: Statistics | None) -> list[Jump]:
    """The jumps from `before` to `now`; without `before` only what the recipe itself promises is compared."""
    jumps: list[Jump] = []
    for variant, numbers in now.variants.items():
        where = f"variant {variant}: " if len(now.variants) > 1 else ""
        last = before.variants.get(variant) if before else None
        if before is not None and last is not None:
            look = f"manifests {before.manifest} and {now.manifest}"
            jumps += _lengths(variant, where, numbers, last, look)
            jumps += _reasons(variant, where, numbers, last)
            jumps += _cuts(variant, where, numbers, last)
            jumps += _no_reasoning(variant, where, numbers, last, look)
        if before is None or _shares(before) == _shares(now):
            jumps += _share(variant, numbers, now.total.prompts)
    return jumps


def _lengths(variant: str, where: str, now: Numbers, before: Numbers, look: str) -> Iterator[Jump]:
    causes = {
        "reasoning": "another template, thinking budget or weights? compare `draftmill inspect` with the structures, "
        f"recipe and provenance of {look}",
        "content": f"other prompts, sampling, template or weights? compare recipe and provenance of {look}",
    }
    for part, cause in causes.items():
        new, old = now.lengths.get(part), before.lengths.get(part)
        if new is not None and old is not None and _mean_jumped(new, old):
            numbers = f"{number(old.mean)} -> {number(new.mean)} ids ({old.answers:,} and {new.answers:,} answers)"
            text = f"{where}mean {part} length {numbers}: {cause}"
            yield Jump(variant, f"mean {part} length", old.mean, new.mean, text)


def _reasons(variant: str, where: str, now: Numbers, before: Numbers) -> Iterator[Jump]:
    for reason in OF_AN_ANSWER:
        # How many were cut is told below, whatever the recipe says about them.
        counts = (now.reasons.get(reason, 0), now.rows, before.reasons.get(reason, 0), before.rows)
        if reason is not Reason.TRUNCATED and _rose(*counts):
            share, old = _share_of(counts[0], counts[1]), _share_of(counts[2], counts[3])
            text = f"{where}{reason} {old:.1%} -> {share:.1%} of the rows: {likely_cause(reason, [])}"
            yield Jump(variant, str(reason), old, share, text)


def _cuts(variant: str, where: str, now: Numbers, before: Numbers) -> Iterator[Jump]:
    """Cut inside the reasoning; else cut at all, which the first is a part of."""
    for what, new, old in (
        ("cut inside reasoning", now.cut_in_reasoning, before.cut_in_reasoning),
        ("cut by length", now.cut, before.cut),
    ):
        if _rose(new, now.answers, old, before.answers):
            share, last = _share_of(new, now.answers), _share_of(old, before.answers)
            text = f"{where}{what} {last:.1%} -> {share:.1%} of the answers: {_TOO_LONG}"
            yield Jump(variant, what, last, share, text)
            return


def _no_reasoning(variant: str, where: str, now: Numbers, before: Numbers, look: str) -> Iterator[Jump]:
    """Up or down: thinking that was switched on by mistake costs a night as well."""
    new, old = (now.no_reasoning, now.answers), (before.no_reasoning, before.answers)
    if _rose(*new, *old) or _rose(*old, *new):
        share, last = _share_of(*new), _share_of(*old)
        cause = f"another template or template_kwargs? compare `draftmill inspect` with the structures of {look}"
        text = f"{where}without reasoning {last:.1%} -> {share:.1%} of the answers: {cause}"
        yield Jump(variant, "without reasoning", last, share, text)


def _share(variant: str, numbers: Numbers, prompts: int) -> Iterator[Jump]:
    """Against the recipe: a hash chooses, so the prompts of a variant are a binomial number."""
    wanted = numbers.share
    if wanted is None or prompts < LEAST:
        return
    share = numbers.prompts / prompts
    error = math.sqrt(wanted * (1 - wanted) / prompts)
    if abs(share - wanted) > max(SHARE_POINTS, SURE * error):
        cause = "did rows of one variant fail, or were only some asked? see `draftmill status`"
        text = f"variant {variant} has {share:.1%} of the new prompts, the recipe says {wanted:.1%}: {cause}"
        yield Jump(variant, "share of the prompts", wanted, share, text)


def _shares(statistics: Statistics) -> dict[str, float | None]:
    """After a change of shares, the new rows are those of the prompts that went over: no sample of the recipe's."""
    return {name: numbers.share for name, numbers in statistics.variants.items()}


def _mean_jumped(now: Lengths, before: Lengths) -> bool:
    if min(now.answers, before.answers) < LEAST:
        return False
    low, high = sorted((now.mean, before.mean))
    error = math.hypot(now.sd / math.sqrt(now.answers), before.sd / math.sqrt(before.answers))
    return high > low * LENGTH_FACTOR and high - low > SURE * error


def _rose(now: int, num_now: int, before: int, num_before: int) -> bool:
    """Two counts of two totals: more than SHARE_POINTS up, and beyond chance (two proportions, pooled error)."""
    if min(num_now, num_before) < LEAST:
        return False
    pooled = (now + before) / (num_now + num_before)
    error = math.sqrt(pooled * (1 - pooled) * (1 / num_now + 1 / num_before))
    return now / num_now - before / num_before > max(SHARE_POINTS, SURE * error)


def _share_of(count: int, total: int) -> float:
    return count / total if total else 0.0
