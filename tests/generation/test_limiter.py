"""The limit of one server: bounds, one halving a round, the way back, and where it settles."""

from __future__ import annotations

import heapq
import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.generation.limiter import GROWTH_PER_ANSWER, Limiter

ceilings = st.integers(1, 300)
EVENTS = ("answered", "refused", "unreachable")


class Driven:
    """A limiter whose clock the test turns: one second an event."""

    def __init__(self, ceiling: int) -> None:
        self.limiter = Limiter(ceiling)
        self.now_s = 0.0

    def do(self, event: str, *, in_flight: int | None = None, age_s: float = 0.5) -> None:
        """`age_s`: how long ago the request left that this is the answer to."""
        self.now_s += 1
        if event == "answered":
            self.limiter.answered()
            return
        flying = self.limiter.limit if in_flight is None else in_flight
        getattr(self.limiter, event)(in_flight=flying, sent_s=self.now_s - age_s, now_s=self.now_s)

    def answers_until(self, limit: int, *, at_most: int) -> int:
        for number in range(at_most + 1):
            if self.limiter.limit >= limit:
                return number
            self.do("answered")
        raise AssertionError(f"still at {self.limiter.limit} of {limit} after {at_most} answers")


@given(ceilings, st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 2000), st.floats(0.1, 5)), max_size=60))
def test_the_limit_stays_between_one_and_the_ceiling_and_always_comes_back(
    ceiling: int, events: list[tuple[str, int, float]]
) -> None:
    driven = Driven(ceiling)
    assert driven.limiter.limit == ceiling
    for event, in_flight, age_s in events:
        before = driven.limiter.limit
        driven.do(event, in_flight=in_flight, age_s=age_s)
        assert 1 <= driven.limiter.limit <= ceiling
        assert (driven.limiter.limit >= before) if event == "answered" else (driven.limiter.limit <= before)
    driven.answers_until(ceiling, at_most=round(ceiling / GROWTH_PER_ANSWER) + 1)


@given(ceilings, st.lists(st.sampled_from(EVENTS[1:]), min_size=1, max_size=50))
def test_one_round_of_refusals_halves_once(ceiling: int, round_of: list[str]) -> None:
    limiter = Limiter(ceiling)
    for number, event in enumerate(round_of):
        # All were sent before the first refusal came; fewer are out with each one that comes back.
        getattr(limiter, event)(in_flight=max(1, ceiling - number), sent_s=0.0, now_s=1.0 + number)
    assert limiter.limit == max(1, ceiling // 2)
    limiter.refused(in_flight=limiter.limit, sent_s=100.0, now_s=101.0)
    assert limiter.limit == max(1, ceiling // 4)


@given(ceilings, st.integers(1, 4000))
def test_it_halves_what_was_in_flight_and_not_a_limit_nobody_used(ceiling: int, in_flight: int) -> None:
    driven = Driven(ceiling)
    driven.do("refused", in_flight=in_flight)
    assert driven.limiter.limit == max(1, min(ceiling, in_flight) // 2)


@given(ceilings)
def test_a_server_that_was_away_is_back_at_once(ceiling: int) -> None:
    driven = Driven(ceiling)
    driven.do("unreachable")
    low = driven.limiter.limit
    assert driven.answers_until(ceiling, at_most=ceiling) <= ceiling - low + 1


@given(st.integers(4, 300))
def test_a_server_that_was_full_is_filled_slowly(ceiling: int) -> None:
    driven = Driven(ceiling)
    driven.do("refused")
    low = driven.limiter.limit
    for _ in range(low):  # a whole round
        driven.do("answered")
    assert driven.limiter.limit <= low * (1 + GROWTH_PER_ANSWER) + 1
    assert driven.answers_until(ceiling, at_most=10**6) >= (ceiling - low - 1) / GROWTH_PER_ANSWER - low


@given(st.integers(16, 300))
def test_away_after_it_was_full_is_quick_up_to_where_it_was_full_and_slow_from_there(ceiling: int) -> None:
    driven = Driven(ceiling)
    driven.do("refused")
    proven = driven.limiter.limit
    driven.do("unreachable")
    low = driven.limiter.limit
    assert low < proven
    assert driven.answers_until(proven, at_most=ceiling) <= proven - low + 1
    assert driven.answers_until(proven + 2, at_most=1000) >= 1 / GROWTH_PER_ANSWER - 1


@given(st.integers(16, 300))
def test_a_server_that_was_full_long_ago_is_back_as_quickly_as_any(ceiling: int) -> None:
    driven = Driven(ceiling)
    driven.do("refused")
    driven.answers_until(ceiling, at_most=10**6)
    driven.do("unreachable")
    assert driven.answers_until(ceiling, at_most=ceiling) <= ceiling // 2 + 1


def simulated(*, capacity: int, ceiling: int, answers: int, seed: int) -> tuple[list[int], list[bool]]:
    """A server that holds `capacity` and refuses the others at once. Requests out at each event, and what came."""
    dice, limiter = random.Random(seed), Limiter(ceiling)
    out: list[int] = []
    came: list[bool] = []
    events: list[tuple[float, int, bool, float]] = []  # (when, tie, answered, sent)
    now_s = rests_until_s = 0.0
    held = number = 0
    while sum(came) < answers:
        while len(events) < limiter.limit and now_s >= rests_until_s:
            number, taken = number + 1, held < capacity
            held += taken
            lasts_s = dice.uniform(0.5, 1.5) if taken else 0.01
            heapq.heappush(events, (now_s + lasts_s, number, taken, now_s))
        if not events:
            now_s = rests_until_s
            continue
        in_flight = len(events)
        now_s, _, answered, sent_s = heapq.heappop(events)
        held -= answered
        if answered:
            limiter.answered()
        else:
            limiter.refused(in_flight=in_flight, sent_s=sent_s, now_s=now_s)
            rests_until_s = now_s + 0.5
        out.append(in_flight)
        came.append(answered)
    return out, came


@pytest.mark.parametrize(("capacity", "ceiling"), [(20, 24), (20, 256), (100, 256), (40, 1024)])
def test_it_settles_near_what_the_server_takes_and_refusals_become_rare(capacity: int, ceiling: int) -> None:
    out, came = simulated(capacity=capacity, ceiling=ceiling, answers=60 * capacity, seed=7)
    settled = [*accumulate(map(int, came))].index(10 * capacity)  # the first flood is over
    mean = sum(out[settled:]) / len(out[settled:])
    assert 0.6 * capacity <= mean <= 1.05 * capacity
    assert came[settled:].count(False) <= 0.02 * len(came[settled:])


def test_a_server_that_takes_all_is_never_held_back() -> None:
    out, came = simulated(capacity=64, ceiling=64, answers=2000, seed=3)
    assert all(came)
    assert set(out) == {64}
