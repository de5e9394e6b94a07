"""docs/audit.md against the verdicts, reasons and numbers of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmill.audit.audit import IN_FLIGHT
from draftmill.audit.positions import NEAR_TIE_NATS
from draftmill.audit.surprise import FALSE_ALARMS
from draftmill.audit.verdict import Doubt, Verdict
from draftmill.engines import sglang, vllm

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*(f"`{doubt}`" for doubt in Doubt), *(f"| {verdict} |" for verdict in Verdict)])
def test_every_verdict_and_reason_has_its_line(name: str) -> None:
    assert f"\n| {name.strip('| ')} |" in PAGE


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"{sglang.NUM_TOP} of SGLang's, {vllm.NUM_TOP} of vLLM's" in PAGE
    assert f"{NEAR_TIE_NATS:g} by default" in PAGE
    assert f"at most {IN_FLIGHT} requests" in PAGE
    assert f"1 in {1 / FALSE_ALARMS:,.0f}" in PAGE
