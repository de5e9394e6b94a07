"""What follows a fault: one table, by kind.

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

LONGEST_RETRY_AFTER_S = 600.0
"""Seconds of Retry-After that are obeyed: whoever asks for more is looked at again after ten minutes all the same."""

LONGEST_REST_S = 5.0
"""Seconds between looks at a server that refuses connections: noticed soon when it is back."""


class Outcome(StrEnum):
    """What the pool does next with the row, or with the run."""

    RETRY = "retry"  # again, after a pause; counts as a try
    WAIT = "wait"  # again when the server is back; bounded by engine.wait_s, not by tries
    FAIL_ROW = "fail_row"
    STOP_RUN = "stop_run"


OUTCOMES = {
    FaultKind.CONNECT: Outcome.WAIT,
    FaultKind.RESET: Outcome.RETRY,
    FaultKind.ABORTED: Outcome.RETRY,
    FaultKind.OVERLOADED: Outcome.RETRY,
    FaultKind.SERVER_ERROR: Outcome.RETRY,
    FaultKind.UNREADABLE: Outcome.RETRY,
    FaultKind.REJECTED: Outcome.FAIL_ROW,
    FaultKind.UNAUTHORIZED: Outcome.STOP_RUN,
    FaultKind.WRONG_SERVER: Outcome.STOP_RUN,
}
"""The whole table. A kind without a line here is a KeyError in the tests."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome and how long to pause first, in seconds."""

    outcome: Outcome
    pause_s: float = 0.0


def rest_s(refusals: int) -> float:
    """Seconds a server is left alone after so many rounds of refused connections in a row."""
    return _doubled(refusals, LONGEST_REST_S)


def decide(fault: Fault, *, tries: int, retries: int, down_s: float | None, wait_s: float) -> Decision:
    """The decision for a row that was answered wrongly `tries` times and may be sent `retries` times again.

    `down_s`: seconds for which no server could be reached, None while one can
    be; `wait_s`: how long that may last.
    """
    outcome = OUTCOMES[fault.kind]
    if outcome is Outcome.WAIT:
        return Decision(Outcome.STOP_RUN if down_s is not None and down_s >= wait_s else Outcome.WAIT)
    if outcome is not Outcome.RETRY:
        return Decision(outcome)
    if tries > retries:
        return Decision(Outcome.FAIL_ROW)
    asked_s = min(fault.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
    return Decision(Outcome.RETRY, max(_doubled(tries, LONGEST_PAUSE_S), asked_s))


def _doubled(times: int, longest_s: float) -> float:
    # The exponent is bounded: a server may be down for days, and 2.0 ** 1024 is an error.
    return min(FIRST_PAUSE_S * 2.0 ** min(times - 1, 16), longest_s)
