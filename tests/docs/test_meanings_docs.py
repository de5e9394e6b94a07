"""What the report says a reason means is what docs/reason-codes.md says, which may go on from there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftmill.records import Reason
from draftmill.reporting.meanings import MEANINGS

DOC = (Path(__file__).parents[2] / "docs/reason-codes.md").read_text(encoding="utf-8")
SAID = {cells[1].strip(" `"): cells[2] for line in DOC.splitlines() if len(cells := line.split("|")) > 3}


def plainly(markdown: str) -> str:
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", markdown).replace("`", "").strip()


@pytest.mark.parametrize("reason", list(Reason))
def test_a_meaning_is_the_documented_one(reason: Reason) -> None:
    assert plainly(SAID[reason.value]).startswith(MEANINGS[reason])
