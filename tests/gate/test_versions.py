"""Known bad versions refuse, their neighbours pass, and what cannot be read is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.gate.table import Level
from draftmill.gate.versions import version_check


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("0.3.6", Level.REFUSE),
        ("0.4.10.post2", Level.REFUSE),
        ("0.4.10.post3", Level.OK),
        ("0.5.1.post2", Level.OK),
        ("0.5.1.post3", Level.REFUSE),
        ("0.5.2rc1", Level.REFUSE),
        ("0.5.3", Level.REFUSE),
        ("0.5.4.post1", Level.REFUSE),
        ("0.5.4.post1+cu128", Level.OK),  # a local label is another build: nothing is written about it
        ("0.5.4.post2", Level.OK),
        ("0.5.5", Level.OK),  # bad only with speculative decoding
        ("0.5.10", Level.OK),
        ("0.5.23", Level.OK),
        ("0.6.0.dev3+gabcdef0", Level.OK),
        ("0.0.0", Level.WARN),  # built from source without tags
        ("0.0.0.dev0", Level.WARN),
        ("0.0.0.dev1+gabcdef0", Level.WARN),
        ("0.0.1", Level.REFUSE),
        ("main", Level.WARN),
        ("", Level.WARN),
        (None, Level.WARN),
    ],
)
def test_a_version_of_sglang(recorded_report: Any, version: str | None, level: Level) -> None:
    seen = version_check(recorded_report(server={"version": version}))
    assert seen.level is level
    assert bool(seen.remedy) is (level is not Level.OK)


@pytest.mark.parametrize("version", ["0.5.5", "0.5.5.post1", "0.5.10"])
def test_some_versions_are_bad_with_speculative_decoding_only(recorded_report: Any, version: str) -> None:
    seen = version_check(recorded_report(server={"version": version, "speculative_algorithm": "EAGLE3"}))
    assert seen.level is Level.WARN
    assert "past the end" in seen.seen
    assert "speculative" in seen.remedy


@pytest.mark.parametrize("version", ["0.5.4.post2", "0.5.6", "0.5.9", "0.5.11"])
def test_others_are_good_with_it(recorded_report: Any, version: str) -> None:
    report = recorded_report(server={"version": version, "speculative_algorithm": "EAGLE3"})
    assert version_check(report).level is Level.OK


def test_of_another_engine_nothing_bad_is_known(recorded_report: Any) -> None:
    report = recorded_report(server={"engine_name": "another", "version": "0.3.0"})
    assert version_check(report).level is Level.OK
