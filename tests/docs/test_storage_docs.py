"""docs/storage.md has the code's own words and figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftmill.dataset.create_only import LOCK, PROBE, SETTLE_S
from draftmill.dataset.patience import OUTAGE_S, SILENT_S, START_S
from draftmill.dataset.s3_faults import _WHAT, Cause
from draftmill.dataset.s3_objects import FIRST_READ_S

TEXT = (Path(__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")
PROSE = " ".join(TEXT.split())

UNSAID = {Cause.BUSY, Cause.SETTINGS, Cause.UNSUPPORTED, Cause.OTHER}
"""Waited for, or too mixed to have a line."""


def test_messages_are_the_codes() -> None:
    table = TEXT.split("| message |")[1].split("\n\n")[0]
    said = {
        re.sub(r"\b(NAME|FILE)\b", "{}", line.split(" | ")[0].removeprefix("| ")) for line in table.splitlines()[2:]
    }
    assert said == {re.sub(r"{\w+}", "{}", words) for cause, words in _WHAT.items() if cause not in UNSAID}


@pytest.mark.parametrize(
    "figure",
    [
        f"at the start about {START_S:.0f} s are waited, and after {SILENT_S:.0f} s that is said",
        f"each request up to {OUTAGE_S / 60:.0f} minutes",
        f"{SETTLE_S:.0f} s longer than without",
        f"`{PROBE}`",
        f"`{LOCK}`",
    ],
)
def test_figures_are_the_codes(figure: str) -> None:
    assert figure in PROSE


def test_the_start_is_a_whole_number_of_looks_at_a_server_that_hangs() -> None:
    assert START_S % FIRST_READ_S == 0
