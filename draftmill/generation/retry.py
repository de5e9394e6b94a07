"""What follows a fault: one table, by kind. docs/faults.md shows it with the statuses behind each kind.

Pure: no clock, no sleep. The pool calls `decide` and does what it says. Nothing
retries below this layer (aiohttp does not) or above it (Prefect's task retries
are off for generation).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from draftmill.records import Fault, FaultKind

FIRST_PAUSE_S = 0.5
"""Seconds before a row's first retry; doubled each time."""

LONGEST_PAUSE_S = 30.0
"""Seconds. A server needs longer than this only while it is down, which is waited for apart."""

LONGEST_RETRY_AFTER_S = 300.0
"""Seconds of Retry-After that are obeyed: well below engine.wait_s, so that who asks for more is asked once more."""

REFUSALS = 20
"""How often one row may be refused (429, 503) by servers that answer others meanwhile: then it is the row."""

LONGEST_REST_S = 5.0
"""Seconds between looks at a server that cannot be asked: noticed soon when it is back."""


class Outcome(StrEnum):
    """What the pool does next with the row, or with the run."""

    RETRY_HERE = "retry here"  # at once, once per try: nothing was wrong but an old connection
    RETRY_ELSEWHERE = "retry elsewhere"  # after a pause, on another server if one has room; counts as a try
    WAIT = "wait"  # sent as soon as any server has room; bounded by engine.wait_s, not by tries
    FAIL_ROW = "fail the row"
    STOP_RUN = "stop the run"


OUTCOMES = {
    FaultKind.STALE: Outcome.RETRY_HERE,
    FaultKind.CONNECT: Outcome.WAIT,
    FaultKind.OVERLOADED: Outcome.WAIT,
    FaultKind.RESET: Outcome.RETRY_ELSEWHERE,
    FaultKind.UNANSWERED: Outcome.RETRY_ELSEWHERE,
    FaultKind.ABORTED: Outcome.RETRY_ELSEWHERE,
    FaultKind.SERVER_ERROR: Outcome.RETRY_ELSEWHERE,
    FaultKind.UNREADABLE: Outcome.RETRY_ELSEWHERE,
    FaultKind.REJECTED: Outcome.FAIL_ROW,
    FaultKind.UNAUTHORIZED: Outcome.STOP_RUN,
    FaultKind.WRONG_SERVER: Outcome.STOP_RUN,
    FaultKind.OTHER_WEIGHTS: Outcome.STOP_RUN,
}
"""The whole table. A kind without a line here is a KeyError in the tests."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome and how long to pause first, in seconds."""

    outcome: Outcome
    pause_s: float = 0.0


def decide(
    fault: Fault, *, tries: int, retries: int, resent: bool = False, refusals: int = 0, answered: bool = False
) -> Decision:
    """The decision for a row that was answered wrongly `tries` times and may be sent `retries` times again.

    `resent`: it was sent again at once already, for the same kind of fault;
    `refusals`: how often servers that answered others refused it; `answered`: the server has answered rows before.
    """
    outcome = OUTCOMES[fault.kind]
    if (outcome is Outcome.RETRY_HERE and resent) or (fault.kind is FaultKind.WRONG_SERVER and answered):
        outcome = Outcome.RETRY_ELSEWHERE
    if outcome is Outcome.WAIT and refusals > REFUSALS:
        outcome = Outcome.FAIL_ROW
    if outcome is not Outcome.RETRY_ELSEWHERE:
        return Decision(outcome)
    if tries > retries:
        return Decision(Outcome.FAIL_ROW)
    return Decision(outcome, _doubled(tries, LONGEST_PAUSE_S))


def rest_s(refusals: int, retry_after_s: float | None = None) -> float:
    """Seconds a server is left alone after so many rounds of refusals in a row, or as long as it asks for."""
    return max(_doubled(refusals, LONGEST_REST_S), min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S))


def _doubled(times: int, longest_s: float) -> float:
    # The exponent is bounded: a server may be down for days, and 2.0 ** 1024 is an error.
    return min(FIRST_PAUSE_S * 2.0 ** min(times - 1, 16), longest_s)
