"""What counts as a jump: large enough and beyond chance; both sides of every bound."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from draftmill.dataset.statistics import Lengths
from draftmill.records import OF_AN_ANSWER, Reason
from draftmill.reporting.drift import LEAST, LENGTH_FACTOR, SHARE_POINTS, SURE, drift
from tests.reporting.nights import lengths, night, numbers


def jumps(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [jump.what for jump in drift(night(4, default=numbers(**now)), night(3, default=numbers(**before)))]


def test_the_same_again_is_no_jump() -> None:
    assert jumps({}, {}) == []


def test_half_as_long_a_reasoning_is_said_with_both_numbers_and_where_to_look() -> None:
    (jump,) = drift(night(4, default=numbers(reasoning=198)), night(3, default=numbers(reasoning=412)))
    assert (jump.variant, jump.what, jump.before, jump.now) == ("default", "mean reasoning length", 412, 198)
    for words in ("412 -> 198 ids", "1,000 and 1,000 answers", "`draftmill inspect`", "manifests 3 and 4"):
        assert words in jump.text


@pytest.mark.parametrize("part", ["reasoning", "content"])
@pytest.mark.parametrize(("factor", "told"), [(1.45, False), (1.55, True), (1 / 1.45, False), (1 / 1.55, True)])
def test_a_mean_length_beyond_the_factor(part: str, factor: float, told: bool) -> None:
    assert LENGTH_FACTOR == 1.5
    assert jumps({part: 300}, {part: 300 * factor}) == ([f"mean {part} length"] if told else [])


@pytest.mark.parametrize(("answers", "told"), [(8, False), (LEAST - 1, False), (60, False), (400, True)])
def test_a_doubled_mean_of_few_long_tailed_answers_may_be_chance(answers: int, told: bool) -> None:
    assert jumps({"rows": answers}, {"rows": answers, "reasoning": 800}) == (["mean reasoning length"] if told else [])


@pytest.mark.parametrize(("answers", "told"), [(LEAST - 1, False), (LEAST, True)])
def test_equal_lengths_are_sure_but_not_of_a_handful(answers: int, told: bool) -> None:
    def group(mean: int) -> Any:
        exact = {"reasoning": lengths(mean, answers=answers, sd=0)}
        return numbers(answers).model_copy(update={"lengths": exact})

    assert bool(drift(night(4, default=group(50)), night(3, default=group(100)))) is told


@pytest.mark.parametrize("code", [code for code in OF_AN_ANSWER if code is not Reason.TRUNCATED])
def test_a_reason_that_rises_is_named_with_its_likely_cause(code: Reason) -> None:
    before, now = numbers(reasons={code: 4}), numbers(reasons={code: 52})
    (jump,) = drift(night(4, default=now), night(3, default=before))
    assert (jump.what, jump.before, jump.now) == (code, 0.004, 0.052)
    assert f"{code} 0.4% -> 5.2% of the rows: " in jump.text
    assert len(jump.text) > len(f"{code} 0.4% -> 5.2% of the rows: ")


@pytest.mark.parametrize(
    ("rows", "before", "now", "told"),
    [
        (10_000, 100, 290, False),  # 1.9 points: sure, and not worth a morning
        (10_000, 100, 310, True),
        (300, 3, 12, False),  # 3 points that may be chance
        (300, 3, 30, True),
        (LEAST - 1, 0, 20, False),
        (10_000, 310, 100, False),  # fewer is fine
    ],
)
def test_a_reasons_bounds(rows: int, before: int, now: int, told: bool) -> None:
    assert (SHARE_POINTS, SURE) == (0.02, 4)
    found = jumps({"rows": rows, "reasons": {"degenerate": before}}, {"rows": rows, "reasons": {"degenerate": now}})
    assert found == (["degenerate"] if told else [])


def test_putting_cut_rows_apart_is_no_jump() -> None:
    before = numbers(cut=200)
    after = before.model_copy(update={"reasons": {"truncated": 200}})
    assert drift(night(4, default=after), night(3, default=before)) == []


def test_cut_inside_reasoning_is_said_once() -> None:
    assert jumps({}, {"cut": 100, "cut_in_reasoning": 90}) == ["cut inside reasoning"]
    assert jumps({"cut": 100, "cut_in_reasoning": 90}, {"cut": 110, "cut_in_reasoning": 95}) == []
    assert jumps({}, {"cut": 100}) == ["cut by length"]
    assert jumps({"cut": 100, "cut_in_reasoning": 90}, {}) == []


def test_answers_without_reasoning() -> None:
    assert jumps({}, {"no_reasoning": 120}) == ["without reasoning"]
    assert jumps({"no_reasoning": 1000}, {"no_reasoning": 1000}) == []


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [(1000, 0, True), (0, 1000, True), (300, 200, True), (200, 300, True), (215, 200, False), (200, 215, False)],
)
def test_reasoning_that_comes_is_told_like_reasoning_that_goes(before: int, now: int, told: bool) -> None:
    found = drift(night(4, default=numbers(no_reasoning=now)), night(3, default=numbers(no_reasoning=before)))
    assert [(jump.what, jump.before, jump.now) for jump in found] == (
        [("without reasoning", before / 1000, now / 1000)] if told else []
    )
    if told:
        assert f"without reasoning {before / 1000:.1%} -> {now / 1000:.1%} of the answers: " in found[0].text


@pytest.mark.parametrize(("prompts", "of", "told"), [(780, 1000, False), (730, 1000, True), (15, 29, False)])
def test_a_variants_share_against_the_recipes(prompts: int, of: int, told: bool) -> None:
    think, fast = numbers(prompts, share=0.8), numbers(of - prompts, share=0.2)
    found = drift(night(1, think=think, fast=fast), None)
    assert [jump.variant for jump in found] == (["think", "fast"] if told else [])
    if told:
        assert "variant think has 73.0% of the new prompts, the recipe says 80.0%" in found[0].text


def test_after_a_change_of_shares_the_new_prompts_are_those_that_went_over() -> None:
    before = night(3, think=numbers(800, share=0.8), fast=numbers(200, share=0.2))
    now = night(4, think=numbers(0, share=0.5), fast=numbers(300, share=0.5))
    assert [jump.what for jump in drift(now, before)] == []


def test_variants_are_compared_each_with_itself() -> None:
    """More of the long variant makes all answers together longer, and no variant's."""
    before = night(3, think=numbers(500, share=0.5, reasoning=900), fast=numbers(500, share=0.5, reasoning=100))
    shorter = night(4, think=numbers(500, share=0.5, reasoning=450), fast=numbers(500, share=0.5, reasoning=100))
    (jump,) = drift(shorter, before)
    assert jump.variant == "think"
    assert jump.text.startswith("variant think: mean reasoning length 900 -> 450")


def test_a_new_variant_and_a_first_manifest_have_nothing_to_compare_with() -> None:
    assert drift(night(1, default=numbers(reasons={"degenerate": 500})), None) == []
    assert drift(night(2, think=numbers(reasoning=5)), night(1, default=numbers())) == []


@pytest.mark.parametrize("rows", [LEAST, 200, 2000])
def test_chance_alone_is_silent(rows: int) -> None:
    """300 nights of the same model, with long-tailed lengths and 5 % bad rows: not one alarm."""
    dice = np.random.default_rng(rows)

    def sampled() -> Any:
        drawn = {part: np.round(dice.lognormal(6, 1, rows)) for part in ("reasoning", "content")}
        parts = {
            part: Lengths(answers=rows, mean=v.mean(), sd=v.std(), p10=1, p50=1, p90=1, p99=1, max=1)
            for part, v in drawn.items()
        }
        reasons = {"degenerate": int(dice.binomial(rows, 0.05))}
        return numbers(rows, reasons=reasons).model_copy(update={"lengths": parts})

    nights = [night(number, default=sampled()) for number in range(1, 301)]
    assert [jump.text for before, now in pairwise(nights) for jump in drift(now, before)] == []
