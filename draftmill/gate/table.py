"""One line of the gate's table, and what all lines together mean for a run. Plain records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from draftmill.errors import GateRefused
from draftmill.records import ServerReport

ALL = "all servers"
"""In place of a URL: a check of the servers against each other."""

NOT_SAID = "not said"
"""What is seen where a server's pages are silent."""


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


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate saw: every check, and the report of each server that gave one."""

    checks: list[Check]
    reports: list[ServerReport]

    @property
    def refusals(self) -> list[Check]:
        return [check for check in self.checks if check.level is Level.REFUSE]

    def refuse(self) -> None:
        """Raises GateRefused with the first refusal, if there is any."""
        if not self.refusals:
            return
        first, others = self.refusals[0], [other.name for other in self.refusals[1:]]
        more = f" (and {len(others)} more: {', '.join(others)}; see `draftmill gate`)" if others else ""
        raise GateRefused(
            f"the gate refuses {first.url}: {first.name}{more}",
            value=first.seen,
            expected=first.expected,
            remedy=first.remedy,
        )
