"""How long the gate waits: for a full server till the deadline, for other faults a few times, never past the night."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import GateRefused, RunStopped
from draftmill.gate import Check, Gate, Level
from draftmill.gate.tries import NOT_WAITING, TRIES, Patience, patience_of, tried
from draftmill.generation.night import NO_END, Night
from draftmill.generation.retry import OUTCOMES, Outcome
from draftmill.progress import Rows, listening
from draftmill.records import Fault, FaultKind
from draftmill.serving.fake_answers import in_order
from draftmill.serving.faults import Fault as Fake
from draftmill.serving.faults import nth

pytestmark = pytest.mark.usefixtures("no_pause")

WAITING = Patience(1e9, time.monotonic() + 1e9)
OVER = Night(0.0, "06:00")
"""A night that has ended."""


class Asked:
    """Gives `fault` so many times, then an answer."""

    def __init__(self, kind: FaultKind, faults: int) -> None:
        self.kind, self.faults, self.times = kind, faults, 0

    async def __call__(self) -> str | Fault:
        self.times += 1
        return "an answer" if self.times > self.faults else Fault(self.kind, "words")


@pytest.mark.parametrize("kind", FaultKind)
async def test_what_follows_each_kind_of_fault(kind: FaultKind) -> None:
    curable = OUTCOMES[kind] in (Outcome.RETRY_HERE, Outcome.RETRY_ELSEWHERE, Outcome.WAIT)
    for patience in (NOT_WAITING, WAITING):
        once, long = Asked(kind, 1), Asked(kind, 50)
        assert (await tried(once, patience) == "an answer") is curable
        await tried(long, patience)
        waits = OUTCOMES[kind] is Outcome.WAIT and patience is WAITING
        assert long.times == (51 if waits else TRIES if curable else 1)


async def test_what_was_waited_for_costs_no_try() -> None:
    faults = [FaultKind.OVERLOADED] * 20 + [FaultKind.RESET, FaultKind.CONNECT, FaultKind.STALE]
    coming = iter([Fault(kind, "words") for kind in faults])

    async def ask() -> str | Fault:
        return next(coming, "an answer")

    assert await tried(ask, WAITING) == "an answer"


@pytest.mark.parametrize("kind", FaultKind)
async def test_nothing_is_tried_again_when_the_night_is_over(kind: FaultKind) -> None:
    ask = Asked(kind, 1)
    assert isinstance(await tried(ask, Patience(1e9, time.monotonic() + 1e9, ends_s=0.0)), Fault)
    assert ask.times == 1


@given(wait_s=st.floats(0, 1e6), night_s=st.none() | st.floats(0, 1e6))
def test_the_gate_waits_no_longer_than_either(recipe_for: Any, wait_s: float, night_s: float | None) -> None:
    engine = recipe_for(engine__wait_s=wait_s).engine
    now_s = time.monotonic()
    patience = patience_of(engine, NO_END if night_s is None else Night(now_s + night_s, "06:00"))
    assert patience.wait_s <= min(wait_s, night_s if night_s is not None else wait_s)
    assert patience.until_s <= patience.ends_s
    assert patience.at_once().left_s() == 0
    assert patience.at_once().ends_s == patience.ends_s


class Heard:
    def __init__(self) -> None:
        self.waits: list[str] = []

    def stage(self, text: str) -> None: ...

    def rows(self, rows: Rows) -> None: ...

    def wait(self, text: str) -> None:
        self.waits.append(text)


async def test_a_full_server_is_waited_for_and_this_is_told(server: Any, inspected: Any) -> None:
    full = dict.fromkeys(range(1, 10), Fake.UNAVAILABLE)
    heard = Heard()
    async with server(answers=in_order([[1000, 1001, 2]]), rule=nth(full)) as fake:
        with listening(heard):
            (await inspected(fake.url, engine__wait_s=600)).refuse()
    assert len(fake.log) == 10
    assert len(heard.waits) == 9
    assert f"{fake.url} takes no request (HTTP 503: The request queue is full.)" in heard.waits[0]


async def test_a_full_server_is_not_waited_for_past_the_night(server: Any, inspected: Any, refusal: Any) -> None:
    async with server(rule=nth(dict.fromkeys(range(1, 1000), Fake.UNAVAILABLE))) as fake:
        seen = await inspected(fake.url, engine__wait_s=600, night=OVER)
    assert len(fake.log) == 1
    assert "engine.wait_s" in refusal(seen).remedy
    with pytest.raises(RunStopped, match="--until 06:00"):
        seen.refuse(night=OVER)


async def test_a_loading_server_is_not_waited_for_past_the_night(server: Any, inspected: Any) -> None:
    """`engine.wait_s` alone would hold the gate for ten minutes."""
    async with server(loading_s=1e9) as fake, asyncio.timeout(60):
        seen = await inspected(fake.url, engine__wait_s=600, night=OVER)
    assert [check.name for check in seen.refusals] == ["loaded"]
    with pytest.raises(RunStopped) as stopped:
        seen.refuse(night=OVER)
    assert stopped.value.exit_code == 5


async def test_a_good_server_passes_even_then(server: Any, inspected: Any) -> None:
    async with server() as fake:
        seen = await inspected(fake.url, night=OVER)
    seen.refuse(night=OVER)
    assert len(fake.log) == 1


def gate_of(*names: str) -> Gate:
    return Gate([Check("http://h", name, Level.REFUSE, "seen", "expected", "remedy") for name in names], [])


@pytest.mark.parametrize(
    ("names", "night", "error"),
    [
        (["reachable"], OVER, RunStopped),
        (["loaded", "canary"], OVER, RunStopped),
        (["loaded", "model"], OVER, GateRefused),  # another night would not help
        (["model"], OVER, GateRefused),
        (["reachable"], NO_END, GateRefused),
        (["reachable"], Night(time.monotonic() + 1e9, "06:00"), GateRefused),
    ],
)
def test_only_what_waits_is_the_nights_fault(names: list[str], night: Night, error: type[Exception]) -> None:
    with pytest.raises(error):
        gate_of(*names).refuse(night=night)


def test_no_refusal_is_no_error_however_late() -> None:
    gate_of().refuse(night=OVER)
