"""The estimate as a whole, and its words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from draftmill.dataset.statistics import Lengths, Numbers
from draftmill.generation.flights import Flights
from draftmill.pilot.draws import Range
from draftmill.pilot.estimate import Estimate, Timed, estimate, pace_of
from draftmill.pilot.hidden import Hidden
from draftmill.pilot.measured import Measured
from draftmill.pilot.servers import servers_of
from draftmill.pilot.split import Frame
from draftmill.pilot.words import headline, lines, notes, page

FACTS = [{"url": "http://one", "facts": {"tp_size": 4, "max_running_requests": 8}}]


def numbers(tokens: np.ndarray) -> Numbers:
    n = len(tokens)
    some = Lengths(answers=n, mean=float(tokens.mean()), sd=1.0, p10=1, p50=2, p90=3, p99=4, max=int(tokens.max()))
    return Numbers(
        rows=n, prompts=n, share=None, reasons={}, answers=n, cut=0, cut_in_reasoning=0, no_reasoning=n,
        lengths={"prompt": some, "output": some},
    )  # fmt: skip


def told(*, came: int = 100, of: int = 1000, timed: bool = True, hidden: Hidden | None = None) -> Estimate | None:
    tokens = np.ceil(np.random.default_rng(1).lognormal(4, 0.5, 100))[:came]
    flights = Flights()
    for number, length in enumerate(tokens.tolist() if timed else []):
        flights.note(number // 8 * 10.0, number // 8 * 10.0 + length * 0.1, int(length))
    frame = Frame({str(n): n for n in range(100)}, np.arange(100) % 5, np.full(5, of // 5), of, 100 * of)
    ids = int(tokens.sum()) + 100 * came
    found = Measured(
        unit_n=np.arange(came), tokens_n=tokens, prompt_n=np.full(came, 100.0), good=max(0, came - 2),
        reasons={"empty_content": 2} if came > 2 else {}, good_ids=ids // 2, ids=ids, bytes=3 * ids, answers=came,
        cut=0, longest=int(tokens.max(initial=0)), lengths={"": numbers(tokens)} if came else {},
    )  # fmt: skip
    servers, seconds = servers_of(FACTS, 8), Timed.of(flights)
    return estimate(
        found, frame, timed=seconds, servers=servers, budget=1000, failed=100 - came, advice=[],
        pace=pace_of(seconds, servers), gpus=None, hidden=hidden,
    )  # fmt: skip


def test_amounts_hang_together() -> None:
    found = told(hidden=Hidden(1024, 4, "config.json"))
    assert found is not None
    whole, left = found.whole, found.left
    assert whole.duration_s and whole.gpu_hours and whole.hidden_bytes and left.duration_s  # noqa: PT018
    assert whole.gpu_hours.middle == pytest.approx(whole.duration_s.middle * 4 / 3600)
    assert whole.storage_bytes.middle == pytest.approx(3 * whole.ids.middle)
    assert whole.hidden_bytes.middle == pytest.approx(whole.ids.middle / 2 * 1024 * 4 * 2, rel=1e-3)
    assert whole.ids.middle == pytest.approx(whole.tokens.middle + 100 * 1000)
    assert (whole.rows, left.rows) == (1000, 900)
    assert left.tokens.middle < whole.tokens.middle
    assert left.duration_s.middle < whole.duration_s.middle
    assert [share.name for share in found.verdicts] == ["good", "empty_content"]
    assert json.loads(json.dumps(found.to_json()))["whole"]["tokens"]["low"] < whole.tokens.middle


def test_the_same_pilot_is_told_in_the_same_numbers() -> None:
    first, second = told(), told()
    assert first is not None
    assert second is not None
    assert first.to_json() == second.to_json()


def test_a_sample_of_everything_has_no_range() -> None:
    found = told(of=100)
    assert found is not None
    assert found.whole.tokens == Range.known(found.whole.tokens.middle)
    assert found.left.tokens == Range.known(0.0)
    assert "(" not in headline(found).split("output tokens")[0].split(", ")[-1]


def test_failed_rows_are_left_and_one_row_tells_nothing() -> None:
    found = told(came=60)
    assert found is not None
    assert found.left.rows == 940
    assert ("request_failed", 40) in [(share.name, share.rows) for share in found.verdicts]
    assert told(came=1) is None


def test_the_words_say_all_of_it_and_what_is_not_known() -> None:
    found = told(timed=False)
    assert found is not None
    text = "\n".join(lines(found))
    assert "still to come" in text
    assert "duration" not in text.split("note:")[0]
    assert any("--hidden-size" in note for note in notes(found))
    markdown = page(told(hidden=Hidden(1024, 4, "config.json")) or found, "data|set")
    assert "data\\|set" in markdown
    for words in ("GPU hours", "hidden states", "storage", "## Verdicts", "## Lengths"):
        assert words in markdown
