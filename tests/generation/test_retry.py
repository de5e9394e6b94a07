"""The table of outcomes, and the pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation import retry
from draftmill.generation.retry import OUTCOMES, Outcome, decide, rest_s
from draftmill.records import Fault, FaultKind

RETRIED = [kind for kind, outcome in OUTCOMES.items() if outcome is Outcome.RETRY]
times = st.integers(1, 10**6)


def outcome(kind: FaultKind, *, tries: int = 1, down_s: float | None = None) -> Outcome:
    return decide(Fault(kind, ""), tries=tries, retries=2, down_s=down_s, wait_s=60).outcome


def test_every_kind_has_one_outcome() -> None:
    assert OUTCOMES.keys() == set(FaultKind)
    assert set(OUTCOMES.values()) == set(Outcome)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FaultKind.CONNECT, Outcome.WAIT),
        (FaultKind.RESET, Outcome.RETRY),
        (FaultKind.ABORTED, Outcome.RETRY),
        (FaultKind.OVERLOADED, Outcome.RETRY),
        (FaultKind.SERVER_ERROR, Outcome.RETRY),
        (FaultKind.UNREADABLE, Outcome.RETRY),
        (FaultKind.REJECTED, Outcome.FAIL_ROW),
        (FaultKind.UNAUTHORIZED, Outcome.STOP_RUN),
        (FaultKind.WRONG_SERVER, Outcome.STOP_RUN),
    ],
)
def test_the_first_fault_of_a_row(kind: FaultKind, expected: Outcome) -> None:
    assert outcome(kind) is expected


@pytest.mark.parametrize("kind", RETRIED)
def test_a_row_is_sent_again_as_often_as_allowed_and_fails_then(kind: FaultKind) -> None:
    assert [outcome(kind, tries=tries) for tries in (1, 2, 3)] == [Outcome.RETRY, Outcome.RETRY, Outcome.FAIL_ROW]


def test_no_retries_means_none() -> None:
    decision = decide(Fault(FaultKind.RESET, ""), tries=1, retries=0, down_s=None, wait_s=60)
    assert decision.outcome is Outcome.FAIL_ROW


@pytest.mark.parametrize(
    ("down_s", "expected"),
    [(None, Outcome.WAIT), (0.0, Outcome.WAIT), (59.9, Outcome.WAIT), (60.0, Outcome.STOP_RUN)],
)
def test_out_of_reach_is_bounded_by_time_and_not_by_tries(down_s: float | None, expected: Outcome) -> None:
    assert outcome(FaultKind.CONNECT, tries=10**6, down_s=down_s) is expected


def test_nothing_is_waited_for_when_waiting_is_off_and_all_are_down() -> None:
    fault = Fault(FaultKind.CONNECT, "")
    assert decide(fault, tries=0, retries=2, down_s=0.0, wait_s=0).outcome is Outcome.STOP_RUN
    assert decide(fault, tries=0, retries=2, down_s=None, wait_s=0).outcome is Outcome.WAIT


@given(tries=times)
def test_pauses_grow_and_are_bounded(tries: int) -> None:
    def pause_s(tries: int) -> float:
        return decide(Fault(FaultKind.RESET, ""), tries=tries, retries=10**7, down_s=None, wait_s=0).pause_s

    assert retry.FIRST_PAUSE_S <= pause_s(tries) <= pause_s(tries + 1) <= retry.LONGEST_PAUSE_S


@given(refusals=times)
def test_rests_grow_and_are_bounded(refusals: int) -> None:
    assert retry.FIRST_PAUSE_S <= rest_s(refusals) <= rest_s(refusals + 1) <= retry.LONGEST_REST_S


@given(seconds=st.floats(0, allow_nan=False), tries=st.integers(1, 3))
def test_retry_after_is_obeyed_within_reason(seconds: float, tries: int) -> None:
    fault = Fault(FaultKind.OVERLOADED, "", retry_after_s=seconds)
    pause_s = decide(fault, tries=tries, retries=5, down_s=None, wait_s=0).pause_s
    assert min(seconds, retry.LONGEST_RETRY_AFTER_S) <= pause_s
    assert pause_s <= max(retry.LONGEST_RETRY_AFTER_S, retry.LONGEST_PAUSE_S)
