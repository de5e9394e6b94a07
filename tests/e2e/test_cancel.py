"""Cancel in the UI, in the middle of a run: what is in flight is aborted, what is finished is kept."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.e2e.asked import A_ROW, IN_FLIGHT, ROWS, Asked, run_in_the_middle, until


@pytest.fixture(scope="module")
def worker(stack):
    return stack.worker()


@pytest.mark.parametrize("way", ["retry", "a new run"])
async def test_a_cancelled_run_aborts_what_is_in_flight_and_then_asks_for_the_rest(
    stack, worker, mill, fake_server, way
) -> None:
    async with fake_server(latency=A_ROW) as fake:
        asked = Asked(fake)
        run = await run_in_the_middle(stack, mill, fake)
        (child,) = stack.children(worker)
        cancelled_at = time.time()
        await asyncio.to_thread(stack.cancel, run)
        await until(lambda: not Path(f"/proc/{child}").exists())
        assert asked.in_flight == 0, "nothing is generated for a client that has left"
        assert sum(entry.status is None for entry in asked.requests) <= IN_FLIGHT
        cancelled = await asyncio.to_thread(stack.wait, run)
        assert cancelled["state"]["name"] == "Cancelled"
        if way == "retry":
            stack.retry(run)
            found = await asyncio.to_thread(stack.wait, run, lambda run: run["state"]["type"] == "COMPLETED")
            assert found["run_count"] == 2
        else:
            again = stack.start("refresh/refresh", **cancelled["parameters"])
            found = await asyncio.to_thread(stack.wait, again)
            assert found["state"]["type"] == "COMPLETED"
    assert len(mill.rows()) == len(asked.rows) == ROWS
    asked.only_what_had_to_be(cancelled_at)
