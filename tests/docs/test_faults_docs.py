"""docs/faults.md is the code's table of outcomes, line by line, and gives its figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftmill.generation import limiter, pace, retry, servers, watch
from draftmill.records import OF_AN_ANSWER

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


def test_every_kind_has_its_outcome_there() -> None:
    told = dict(re.findall(r"\| `(\w+)` \| ([a-z ]+) \|$", PAGE, re.MULTILINE))
    assert told == {kind.value: outcome.value for kind, outcome in retry.OUTCOMES.items()}


def test_every_outcome_is_explained() -> None:
    assert set(re.findall(r"^- \*\*([a-z ]+)\*\*:", PAGE, re.MULTILINE)) == {o.value for o in retry.Outcome}


def test_the_reasons_named_are_reasons() -> None:
    reasons = set(re.findall(r"\| `(\w+)` \|$", PAGE, re.MULTILINE))
    assert reasons
    assert reasons <= {reason.value for reason in OF_AN_ANSWER}


@pytest.mark.parametrize(
    "figure",
    [
        f"({retry.FIRST_PAUSE_S} s, doubled up to {retry.LONGEST_PAUSE_S:.0f} s)",
        f"else {retry.FIRST_PAUSE_S} s, doubled up to {retry.LONGEST_REST_S:.0f} s",
        f"without any answer for {watch.QUIET_S:.0f} s",
        f"stuck for more than {watch.GRACE_S:.0f} s",
        f"never before {pace.LEAST_S:.0f} s; before any answer, {pace.UNMEASURED_S:.0f} s",
    ],
)
def test_figures_are_the_codes(figure: str) -> None:
    assert figure in PROSE


def test_figures_in_words_are_the_codes() -> None:
    assert (servers.OUT_AFTER, pace.PATIENCE, watch.NO_TOKENS_S, pace.UNMEASURED_S_PER_ID) == (8, 4, 120, 0.25)
    assert limiter.GROWTH_PER_ANSWER == 0.1
