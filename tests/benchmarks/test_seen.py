"""What a benchmark makes of the fake server's log: its own arithmetic must be beyond doubt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.seen import perfect_s, seen

SERVICES = st.lists(st.floats(0.001, 100), min_size=1, max_size=60)


def entry(number: int, *, at: float, runs: float, ends: float, **changes: Any) -> dict[str, Any]:
    times = {"started_at": at, "running_at": runs, "ended_at": ends}
    return {**times, "status": 200, "input_ids": [number], **changes}


def test_a_free_slot_takes_the_next_row_at_once():
    assert perfect_s([3, 1, 1, 1, 5], slots=2) == 8  # 3 and 5 on one slot; 1, 1, 1 on the other, free at the same time
    assert perfect_s([3, 1, 1, 5], slots=2) == 7


@given(SERVICES)
def test_one_slot_does_everything_in_turn(services):
    assert perfect_s(services, slots=1) == pytest.approx(sum(services))


@given(SERVICES, st.integers(1, 70))
def test_no_refill_beats_the_longest_row_or_full_slots(services, slots):
    assert perfect_s(services, slots) >= max(max(services), sum(services) / slots) - 1e-9


def test_rows_are_counted_from_the_first_request_to_the_last_answer_without_the_canary():
    log = [
        entry(9, at=0, runs=0, ends=1),  # the canary
        entry(2, at=11, runs=12, ends=16),
        entry(1, at=10, runs=10, ends=14),
    ]
    found = seen(log, [[1], [2]])
    assert (found.rows, found.seconds, found.service_s) == (2, 6, (4, 4))
    assert found.of_perfect(slots=1) == 6 / 8


@pytest.mark.parametrize(
    "log",
    [
        [entry(1, at=0, runs=0, ends=1)],
        [entry(1, at=0, runs=0, ends=1), entry(2, at=0, runs=0, ends=1, status=503)],
        [entry(number, at=0, runs=0, ends=1) for number in (1, 1, 2)],
    ],
    ids=["missing", "refused", "asked twice"],
)
def test_a_run_that_did_not_ask_each_row_once_is_no_result(log):
    with pytest.raises(ValueError, match="for 2 rows"):
        seen(log, [[1], [2]])
