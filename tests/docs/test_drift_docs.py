"""docs/drift.md and docs/dataset.md name the code's bounds and fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftmill.dataset.statistics import Lengths, Numbers, Statistics
from draftmill.reporting.drift import LEAST, LENGTH_FACTOR, SHARE_POINTS, SURE

DOCS = Path(__file__).parents[2] / "docs"
DRIFT = " ".join((DOCS / "drift.md").read_text(encoding="utf-8").split())
STATISTICS = (DOCS / "dataset.md").read_text(encoding="utf-8").partition("## Statistics")[2]


@pytest.mark.parametrize(
    "figure",
    [
        f"beyond {LENGTH_FACTOR} times, or below 1/{LENGTH_FACTOR} of",
        f"more than {100 * SHARE_POINTS:.0f} points",
        f"{SURE:.0f} standard errors",
        f"at least {LEAST} rows",
    ],
)
def test_figures_are_the_codes(figure: str) -> None:
    assert figure in DRIFT


def test_every_field_of_the_statistics_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", STATISTICS))
    fields = {name for model in (Statistics, Numbers, Lengths) for name in model.model_fields}
    assert fields <= named
