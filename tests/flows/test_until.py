"""A night that ends: what is done is sealed, the rest is pending, and the next run asks only for that."""

from __future__ import annotations

import pytest

import flows.refresh
from draftmill.errors import RecipeError
from draftmill.generation.night import Night
from draftmill.serving.faults import Fault

EIGHT = [f"prompt {n}" for n in range(8)]
CANARY = 1


class Countdown:
    """A night measured in rows, not in seconds: so many are sent. `hangs`: then those in flight have no time left."""

    ends_s = 0.0

    def __init__(self, rows: int, *, hangs: bool = False) -> None:
        self.left = rows
        self.hangs = hangs
        self.error = Night(0.0, "06:00").error

    def may_send(self, now_s: float, usual_s: float | None) -> bool:
        self.left -= 1
        return self.left >= 0

    def left_s(self, now_s: float) -> float:
        return 0.0 if self.hangs and self.left < 0 else 3600.0


@pytest.fixture
def ends_after(monkeypatch):
    """`ends_after(rows)`: the night of runs that are given an `until`."""

    def set_night(rows: int, **options: bool) -> None:
        night = Countdown(rows, **options)
        monkeypatch.setattr(flows.refresh, "night_until", lambda until, **_: night if until else Night())

    return set_night


async def test_what_is_done_is_sealed_and_the_next_run_asks_for_the_rest(mill, fake_server, ends_after) -> None:
    mill.prompts(EIGHT)
    ends_after(5)
    async with fake_server() as fake:
        mill.url = fake.url
        data = await mill.refresh(until="06:00")
        rows = data["summary"]["rows"]
        assert (data["state"], data["exit_code"]) == ("RowsMissing", 5)
        assert (rows["ok"], rows["pending"], data["summary"]["requests"]) == (5, 3, 5)
        assert data["summary"]["sealed"]
        assert "the time given is over" in data["error"]
        assert "--until 06:00" in data["error"]
        assert len(mill.rows()) == 5
        data = await mill.refresh(until=None)
        assert (data["state"], data["exit_code"], data["summary"]["requests"]) == ("Completed", 0, 3)
    assert len({row["row_key"] for row in mill.rows()}) == 8


async def test_rows_still_in_flight_at_the_end_are_given_up_and_stay_pending(mill, fake_server, ends_after) -> None:
    mill.prompts(EIGHT)
    ends_after(6, hangs=True)
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda number, request: Fault.HANG if number > CANARY + 3 else None
        data = await mill.refresh(until="06:00")
        rows = data["summary"]["rows"]
        assert (data["exit_code"], rows["ok"], rows["failed"], rows["pending"]) == (5, 3, 0, 5)
        assert sum(entry.fault is Fault.HANG for entry in fake.log) == 3
        fake.rule = None
        data = await mill.refresh()
    assert (data["state"], data["summary"]["requests"], len(mill.rows())) == ("Completed", 5, 8)


async def test_a_night_too_short_for_anything_makes_no_manifest(mill, fake_server) -> None:
    """With real clocks: loading alone takes longer, and what might be sent hangs."""
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(plan_only=True)
        fake.rule = lambda number, request: Fault.HANG if number > CANARY else None
        data = await mill.refresh(until="1s")
        assert (data["exit_code"], data["summary"]["rows"]["pending"], mill.manifest) == (5, 8, None)
        fake.rule = None
        data = await mill.refresh(until="9h")
    assert (data["state"], data["exit_code"], len(mill.rows())) == ("Completed", 0, 8)


async def test_a_text_that_is_no_time_ends_the_flow_before_anything_begins(mill) -> None:
    with pytest.raises(RecipeError, match="until is no time"):
        await mill.refresh(until="six o'clock")
