"""docs/dataset.md names what the housekeeping commands do by the code's own numbers and fields."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from draftmill.dataset import compact, gc
from draftmill.dataset.card import BEGIN, END
from draftmill.dataset.status import Status

TEXT = (Path(__file__).parents[2] / "docs" / "dataset.md").read_text(encoding="utf-8")
PROSE = " ".join(TEXT.split())


@pytest.mark.parametrize(
    "figure",
    [
        f"up to {compact.TARGET_BYTES >> 20} MB or {compact.TARGET_IDS >> 20} million ids",
        f"newest `--keep` versions ({gc.KEEP})",
        f"within `--older-than` ({gc.GRACE.total_seconds() / 3600:.0f}h)",
    ],
)
def test_figures_are_the_codes(figure: str) -> None:
    assert figure in PROSE


def test_the_cards_markers() -> None:
    assert BEGIN.startswith("<!-- draftmill: ")
    assert END.startswith("<!-- draftmill: ")
    assert "`<!-- draftmill: ... -->`" in PROSE


def test_fields_of_the_status() -> None:
    (line,) = (line for line in TEXT.splitlines() if line.startswith("| `status` |"))
    fields = {field.name for field in dataclasses.fields(Status)} - {"statistics_before", "recipe"}
    assert set(re.findall(r"`(\w+)`", line)) == fields | {"status", "drift"}


def test_folders_that_gc_looks_into() -> None:
    table = TEXT.split("goes, once older than")[1].split("Manifests stay")[0]
    named = set(re.findall(r"`(\w+)/`", table))
    assert named == {*gc.DATA, *gc.WORKING, "completions"}
