"""What `in_flight` and `max_new_tokens` should be, and what servers say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftmill.pilot.advice import budget_advice, in_flight_advice
from draftmill.pilot.measured import Measured
from draftmill.pilot.pace import Pace
from draftmill.pilot.servers import servers_of


def measured(*, answers: int = 200, cut: int = 0, longest: int = 1000, tokens: float = 500.0) -> Measured:
    return Measured(
        unit_n=np.arange(answers),
        tokens_n=np.full(answers, tokens),
        prompt_n=np.full(answers, 250.0),
        good=answers,
        reasons={},
        good_ids=1,
        ids=1,
        bytes=1,
        answers=answers,
        cut=cut,
        longest=longest,
        lengths={},
    )


def reports(**facts: Any) -> list[dict[str, Any]]:
    return [{"url": f"http://{number}", "facts": facts} for number in range(2)]


def test_facts_of_servers_and_what_none_says() -> None:
    told = servers_of(reports(max_running_requests=48, max_total_num_tokens=100_000, tp_size=8, dp_size=2), 64)
    assert (told.number, told.running, told.gpus, told.places) == (2, 48, 32, 96)
    assert told.cache_places(np.array([250.0]), np.array([500.0])) == 200
    silent = servers_of(reports(max_running_requests="many"), 64)
    assert (silent.running, silent.cache_ids, silent.gpus, silent.places) == (None, None, None, 128)
    nobody = servers_of([], 64)
    assert (nobody.number, nobody.gpus) == (1, None)


@pytest.mark.parametrize(
    ("in_flight", "facts", "better", "words"),
    [
        (256, {"max_running_requests": 48}, 53, "wait in its queue"),
        (16, {"max_running_requests": 48}, 53, "it has room"),
        (50, {"max_running_requests": 48}, 50, "it is full"),
        (64, {"max_running_requests": 200, "max_total_num_tokens": 10_000}, 22, "its cache holds about 20"),
        (64, {}, 64, "do not say"),
    ],
)
def test_in_flight(in_flight: int, facts: dict[str, Any], better: int, words: str) -> None:
    advice = in_flight_advice(servers_of(reports(**facts), in_flight), measured(), None)
    assert (advice.now, advice.better) == (in_flight, better)
    assert words in advice.why


def test_what_more_would_bring_is_told_by_the_pace() -> None:
    pace = Pace(base_s=0.01, load_s=0.0001, extra=0.0, spread=0.1, answers=200)
    advice = in_flight_advice(servers_of(reports()[:1], 100), measured(), pace)
    assert "200 would bring +33% tokens a second" in advice.why


@pytest.mark.parametrize(
    ("found", "budget", "better", "words"),
    [
        (measured(cut=20), 1000, 2000, "only the rows that were cut are asked again"),
        (measured(cut=20), 30_000, 32_000, "20 of 200 answers were cut"),
        (measured(cut=0, longest=1000), 32_000, 2048, "less is enough"),
        (measured(cut=0, longest=1000), 2000, 2000, "the longest answer had 1,000 ids"),
        (measured(cut=1), 2000, 2000, "0.1% to 2.2%"),
    ],
)
def test_the_budget(found: Measured, budget: int, better: int, words: str) -> None:
    advice = budget_advice(found, budget=budget, room=32_000)
    assert (advice.now, advice.better) == (budget, better)
    assert words in advice.why
