"""What the commands print about attempts: nothing while every row was asked once."""

from __future__ import annotations

import json

import pytest

from draftmill.dataset.status import Status
from draftmill.reporting.summary import Summary
from draftmill.reporting.terminal import print_status, print_summary


@pytest.mark.parametrize(
    ("attempts", "line"),
    [
        ({}, None),
        ({"0": 5}, None),
        ({"0": 1200, "1": 3}, "good rows by attempt (asked again, or on): attempt 0 1,200, attempt 1 3"),
    ],
)
def test_attempts_are_told_where_a_row_was_asked_again(
    attempts: dict[str, int], line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(Summary("d", 1).to_json(), plan=False, as_json=True, attempts=attempts)
    of_run = capsys.readouterr().out.splitlines()
    print_status(Status("d", [], attempts=attempts), as_json=True)
    of_status = capsys.readouterr().out.splitlines()
    assert json.loads(of_status[-1])["attempts"] == attempts
    for lines in (of_run, of_status):
        assert [text for text in lines if "good rows by attempt" in text] == ([] if line is None else [line])
