"""One line of the gate's table, and what all lines together mean for a run. Plain records."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from draftmill.errors import GateRefused
from draftmill.generation.night import NO_END, Night
from draftmill.records import ServerReport

ALL = "all servers"
"""In place of a URL: a check of the servers against each other."""

NOT_SAID = "not said"
"""What is seen where a server's pages are silent."""

WAITED_FOR = frozenset({"reachable", "loaded", "canary"})
"""Checks that more time may cure."""


class Level(StrEnum):
    """What a check's result means for the run."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the gate's table. `remedy` is empty where there is nothing to do."""

    url: str
    name: str
    level: Level
    seen: str
    expected: str
    remedy: str = ""


def check(
    url: str, name: str, holds: bool, *, seen: object, expected: str, remedy: str, level: Level = Level.REFUSE
) -> Check:
    """A check that is ok when it holds, and `level` with a remedy when it does not."""
    said = NOT_SAID if seen is None else str(seen)
    return Check(url, name, Level.OK if holds else level, said, expected, "" if holds else remedy)


def shows_flags(report: ServerReport) -> bool:
    """Whether the engine tells how it was started; what is missing there is not set, elsewhere it is not said."""
    return report.auto_truncate is not None


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate saw: every check, and the report of each server that gave one."""

    checks: list[Check]
    reports: list[ServerReport]

    @property
    def refusals(self) -> list[Check]:
        return [check for check in self.checks if check.level is Level.REFUSE]

    def refuse(self, *, night: Night = NO_END) -> None:
        """Raises GateRefused with the first refusal, if there is any; RunStopped when only the night was too short."""
        if not self.refusals:
            return
        if night.left_s(time.monotonic()) == 0 and WAITED_FOR.issuperset(each.name for each in self.refusals):
            raise night.error()
        first, others = self.refusals[0], [other.name for other in self.refusals[1:]]
        more = f" (and {len(others)} more: {', '.join(others)}; see `draftmill gate`)" if others else ""
        raise GateRefused(
            f"the gate refuses {first.url}: {first.name}{more}",
            value=first.seen,
            expected=first.expected,
            remedy=first.remedy,
        )
