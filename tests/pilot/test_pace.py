"""The pace of servers out of when answers came, and list scheduling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.pilot import pace as pace_module
from draftmill.pilot.pace import begun_s, fit, span

PLACES = 16


def served(tokens: np.ndarray, *, base_s: float, load_s: float, extra: float) -> tuple[np.ndarray, np.ndarray]:
    """When requests leave and come on a server that is as the model says; second by second, without its algebra."""
    left = list(tokens + extra)
    sent, came = np.zeros(len(left)), np.zeros(len(left))
    running: dict[int, float] = {}
    waiting, now = list(range(len(left))), 0.0
    while waiting or running:
        while waiting and len(running) < PLACES:
            running[waiting[0]] = left[waiting[0]]
            sent[waiting.pop(0)] = now
        an_id_s = base_s + load_s * len(running)
        step = min(running.values())
        now += step * an_id_s
        for number in list(running):
            running[number] -= step
            if running[number] <= 1e-9:
                came[number] = now
                del running[number]
    return sent, came


def test_the_pace_of_a_server_is_found_again_and_foretells_more_rows() -> None:
    dice = np.random.default_rng(1)
    few, many = np.ceil(dice.lognormal(5, 0.8, 80)), np.ceil(dice.lognormal(5, 0.8, 600))
    found = fit(*served(few, base_s=0.02, load_s=0.001, extra=10), few, PLACES)
    assert found is not None
    assert found.base_s == pytest.approx(0.02, rel=0.05)
    assert found.load_s == pytest.approx(0.001, rel=0.1)
    assert found.extra == pytest.approx(10, rel=0.2)
    _, came = served(many, base_s=0.02, load_s=0.001, extra=10)
    assert found.duration_s(many, PLACES) == pytest.approx(came.max(), rel=0.02)


def test_a_server_that_queues_is_seen_as_what_it_runs() -> None:
    tokens = np.full(40, 100.0)
    _, came = served(tokens, base_s=0.02, load_s=0.0, extra=0)
    found = fit(np.zeros(40), came, tokens, PLACES)  # all were sent at once
    assert found is not None
    assert found.base_s + found.load_s * PLACES == pytest.approx(0.02, rel=0.05)
    assert begun_s(np.zeros(40), came, PLACES).tolist() == [0.0] * 16 + [2.0] * 16 + [4.0] * 8


def test_few_answers_and_none() -> None:
    assert fit(np.zeros(0), np.zeros(0), np.zeros(0), 4) is None
    found = fit(np.zeros(2), np.array([1.0, 3.0]), np.array([10.0, 30.0]), 4)
    assert found is not None
    assert found.base_s == pytest.approx(0.1)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 8))
def test_a_schedule_ends_within_its_bounds(jobs: list[int], places: int) -> None:
    work = np.array(jobs, float)
    end = span(work, places)
    longest = float(work.max(initial=0.0))
    assert max(longest, work.sum() / places) - 1e-9 <= end <= work.sum() / places + longest + 1e-9


def test_a_very_long_schedule_ends_as_it_would_place_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    work = np.random.default_rng(5).lognormal(5, 1, 5000)
    whole = span(work, 8)
    monkeypatch.setattr(pace_module, "LAST", 500)
    assert span(work, 8) == pytest.approx(whole, rel=0.01)
    assert span(work, 8) != whole
