"""docs/alarms.md: its names and figures are the code's."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, get_current_settings

from draftmill.cli_operate import alarms as command
from flows import alarms
from flows.launch import TAG

PAGE = (Path(__file__).parents[2] / "docs" / "alarms.md").read_text(encoding="utf-8")

BEAT_S = type(get_current_settings().flows).model_fields["heartbeat_frequency"].default


@pytest.mark.parametrize(
    "words",
    [
        *(f"`{name}`" for name in (alarms.SILENT, alarms.FAILED, alarms.WAITING)),
        f"`--silent-after` ({inspect.signature(command).parameters['silent_after'].default})",
        f"`webhook/{alarms.WEBHOOK_NAME}`",
        f"the tag `{TAG}`",
        f"a heartbeat each {BEAT_S} s",
        f"least three of them, {alarms.BEATS * BEAT_S} s",
        f"({alarms.HEARTBEAT_MIN_S} is the least)",
        f"--silent-after {alarms.BEATS * alarms.HEARTBEAT_MIN_S}s",
        f"{PREFECT_FLOWS_HEARTBEAT_FREQUENCY.name}={alarms.HEARTBEAT_MIN_S}",
    ],
)
def test_names_and_figures_are_the_codes(words: str) -> None:
    assert words in " ".join(PAGE.split())
