"""Engine versions that are known to give other ids than the model's, with where that is written.

Ranges are inclusive and compared as PEP 440 orders versions. A version that
cannot be read, or that a build from source made up (0.0.0.dev1+g1234), is a
warning: nothing is known about it. Of an engine without a range nothing bad is
known.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from draftmill.gate.table import Check, Level, check
from draftmill.records import ServerReport


@dataclass(frozen=True, slots=True)
class BadRange:
    """Versions from `first` (None = the oldest) to `last`. `speculative`: only with speculative decoding."""

    engine: str
    first: str | None
    last: str
    harm: str
    level: Level = Level.REFUSE
    speculative: bool = False

    def holds(self, version: Version) -> bool:
        return (self.first is None or Version(self.first) <= version) and version <= Version(self.last)


BAD_RANGES = (
    BadRange("sglang", None, "0.4.10.post2", "/generate returns text and no ids"),
    BadRange(
        "sglang", "0.5.1.post3", "0.5.4.post1", "up to 5 ids of the prompt's tail in front (sglang#10896, #17240)"
    ),
    # Such answers are found row by row (after_end_of_turn): a warning is enough.
    BadRange("sglang", "0.5.5", "0.5.5.post999", "ids past the end of the turn", Level.WARN, speculative=True),
    BadRange("sglang", "0.5.10", "0.5.10.post999", "ids past the end of the turn", Level.WARN, speculative=True),
)

UNKNOWN_REMEDY = "nothing is known of this version: compare it with the list in docs/engines.md"


def version_check(report: ServerReport) -> Check:
    """The server's version against the ranges. Pure."""
    expected = "a version that returns the model's ids"
    if report.name not in {bad.engine for bad in BAD_RANGES}:
        return check(report.url, "version", True, seen=report.version, expected=expected, remedy="")
    version = _known(report.version)
    if version is None:
        seen = report.engine if report.version else None
        return check(
            report.url, "version", False, seen=seen, expected=expected, remedy=UNKNOWN_REMEDY, level=Level.WARN
        )
    speculative = report.facts.get("speculative_algorithm") is not None
    bad = next((each for each in BAD_RANGES if _applies(each, report.name, version, speculative=speculative)), None)
    return check(
        report.url,
        "version",
        bad is None,
        seen=report.engine if bad is None else f"{report.engine}: {bad.harm}",
        expected=expected,
        remedy=_remedy(bad),
        level=bad.level if bad else Level.REFUSE,
    )


def _known(said: str | None) -> Version | None:
    """None for what names no release: setuptools-scm calls a build without tags 0.0.0."""
    try:
        version = Version(said or "")
    except InvalidVersion:
        return None
    return version if any(version.release) else None


def _applies(bad: BadRange, engine: str, version: Version, *, speculative: bool) -> bool:
    return bad.engine == engine and bad.holds(version) and (speculative or not bad.speculative)


def _remedy(bad: BadRange | None) -> str:
    if bad is None:
        return ""
    return "run a newer version" + (", or switch speculative decoding off" if bad.speculative else "")
