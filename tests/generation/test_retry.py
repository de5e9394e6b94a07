"""The table of outcomes, and the pauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation import retry
from draftmill.generation.retry import OUTCOMES, Decision, Outcome, decide, rest_s
from draftmill.records import Fault, FaultKind

TABLE = {
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
RETRIED = [kind for kind, outcome in TABLE.items() if outcome is Outcome.RETRY_ELSEWHERE]
AT_ONCE = [kind for kind, outcome in TABLE.items() if outcome not in (Outcome.RETRY_ELSEWHERE, Outcome.RETRY_HERE)]
times = st.integers(1, 10**6)


def outcome(kind: FaultKind, *, tries: int = 1, resent: bool = False) -> Outcome:
    return decide(Fault(kind, ""), tries=tries, retries=2, resent=resent).outcome


def test_every_kind_has_one_outcome_and_every_outcome_a_kind() -> None:
    assert OUTCOMES.keys() == TABLE.keys() == set(FaultKind)
    assert set(OUTCOMES.values()) == set(Outcome)


@pytest.mark.parametrize(("kind", "expected"), TABLE.items())
def test_the_first_fault_of_a_row(kind: FaultKind, expected: Outcome) -> None:
    assert outcome(kind) is expected


@pytest.mark.parametrize("kind", RETRIED)
def test_a_row_is_sent_again_as_often_as_allowed_and_fails_then(kind: FaultKind) -> None:
    again = Outcome.RETRY_ELSEWHERE
    assert [outcome(kind, tries=tries) for tries in (1, 2, 3)] == [again, again, Outcome.FAIL_ROW]
    assert decide(Fault(kind, ""), tries=1, retries=0).outcome is Outcome.FAIL_ROW


@given(st.sampled_from(AT_ONCE), times, st.integers(0, 100), st.booleans())
def test_what_is_decided_at_once_does_not_depend_on_tries(
    kind: FaultKind, tries: int, retries: int, resent: bool
) -> None:
    decision = decide(Fault(kind, "", retry_after_s=9.0), tries=tries, retries=retries, resent=resent)
    assert decision == Decision(TABLE[kind], 0.0)


@given(times)
def test_an_old_connection_is_tried_anew_at_once_and_costs_a_try_the_second_time(tries: int) -> None:
    fault = Fault(FaultKind.STALE, "")
    assert decide(fault, tries=tries, retries=0) == Decision(Outcome.RETRY_HERE, 0.0)
    assert decide(fault, tries=tries, retries=10**7, resent=True).outcome is Outcome.RETRY_ELSEWHERE
    assert decide(fault, tries=tries, retries=tries - 1, resent=True).outcome is Outcome.FAIL_ROW


@given(tries=times)
def test_pauses_grow_and_are_bounded(tries: int) -> None:
    def pause_s(tries: int) -> float:
        return decide(Fault(FaultKind.RESET, ""), tries=tries, retries=10**7).pause_s

    assert retry.FIRST_PAUSE_S <= pause_s(tries) <= pause_s(tries + 1) <= retry.LONGEST_PAUSE_S
    assert pause_s(50) == retry.LONGEST_PAUSE_S


@given(refusals=times)
def test_rests_grow_and_are_bounded(refusals: int) -> None:
    assert retry.FIRST_PAUSE_S <= rest_s(refusals) <= rest_s(refusals + 1) <= retry.LONGEST_REST_S
    assert rest_s(50) == retry.LONGEST_REST_S


@given(st.floats(0, allow_nan=False), st.integers(1, 10))
def test_retry_after_is_obeyed_within_reason(seconds: float, refusals: int) -> None:
    asked_s = rest_s(refusals, seconds)
    assert min(seconds, retry.LONGEST_RETRY_AFTER_S) <= asked_s <= retry.LONGEST_RETRY_AFTER_S
    assert asked_s >= rest_s(refusals)
