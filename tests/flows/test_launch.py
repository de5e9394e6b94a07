"""The end of a run that does not end by itself: Prefect's client may wait for minutes for a server that is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from prefect import State, flow
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelling, Completed

from draftmill.errors import DraftmillError, RecipeError
from flows import launch
from tasks.ending import followed

STUBBORN = """
import asyncio
from prefect import flow
from flows import launch

@flow
async def stubborn():
    print("running", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("cancelled", flush=True)

launch.GIVE_UP_S = {give_up_s}
launch.FLOWS["stubborn"] = stubborn
launch.launch("stubborn")
"""


@pytest.mark.parametrize(("give_up_s", "signals"), [(2, 1), (600, 2)])
async def test_a_run_that_will_not_end_is_ended(give_up_s: float, signals: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STUBBORN.format(give_up_s=give_up_s),
        env={**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"running\n"
    for number in range(signals):
        # SIGTERM has a handler of Prefect's beside ours, either of which may be first.
        process.send_signal(signal.SIGINT)
        if number == 0:
            assert await process.stdout.readline() == b"cancelled\n"
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 5
    assert "stopped before all rows were asked" in said.decode()
    assert "finished rows are kept" in said.decode()


A_REFUSAL = RecipeError("no such key", value="x", expected="a key", remedy="write one")


@dataclass
class LateCancel:
    """Flows that are cancelled in the UI when their rows are sealed, on the command line."""

    monkeypatch: pytest.MonkeyPatch
    runs: list[UUID] = field(default_factory=list)

    def launch(self, error: DraftmillError | None = None, *, noticed: bool = False) -> dict[str, Any]:
        """`noticed`: by the command, while the run's end is on its way to the server."""

        @followed
        async def body() -> State[Any]:
            context = FlowRunContext.get()
            assert context is not None
            assert context.flow_run is not None
            self.runs.append(context.flow_run.id)
            async with get_client() as client:
                await client.set_flow_run_state(self.runs[0], Cancelling(), force=True)
            if error:
                raise error
            return Completed(message="3 new rows", data={"rows": 3})

        @flow(name="late")
        async def late() -> State[Any]:
            state = await body()
            if noticed:
                await asyncio.sleep(600)
            return state

        self.monkeypatch.setattr(launch, "LOOK_EVERY_S", 0.1 if noticed else 600)
        self.monkeypatch.setattr(launch, "GIVE_UP_S", 600)  # it would end the tests
        self.monkeypatch.setitem(launch.FLOWS, "late", late)
        return launch.launch("late")

    @property
    def state(self) -> str | None:
        """As the server has it."""
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(self.runs[0]).state
        return state.name if state else None


def about_to_be_killed() -> bool:
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    return any(timer.function is launch._give_up and not timer.finished.is_set() for timer in timers)


@pytest.fixture
def late_cancel(monkeypatch: pytest.MonkeyPatch) -> LateCancel:
    return LateCancel(monkeypatch)


@pytest.mark.parametrize("noticed", [False, True])
def test_a_cancel_in_the_last_moment_loses_nothing_that_was_done(late_cancel: LateCancel, noticed: bool) -> None:
    assert late_cancel.launch(noticed=noticed) == {"rows": 3}
    assert not about_to_be_killed(), "what was done is still to be said"
    assert late_cancel.state == "Cancelled", "not Cancelling, which the server would leave for minutes"


@pytest.mark.parametrize("noticed", [False, True])
def test_a_cancel_in_the_last_moment_hides_no_error(late_cancel: LateCancel, noticed: bool) -> None:
    with pytest.raises(RecipeError) as raised:
        late_cancel.launch(A_REFUSAL, noticed=noticed)
    assert raised.value is A_REFUSAL
    assert late_cancel.state == "Cancelled"
