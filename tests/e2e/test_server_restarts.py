"""The Prefect server goes in the middle of a run: rows are asked on and sealed, and none of them twice."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.e2e.asked import A_ROW, Asked, run_in_the_middle, until

ROWS = 64
AWAY_S = 20


async def test_a_server_that_is_away_for_a_while(stack, mill, fake_server) -> None:
    worker = await asyncio.to_thread(stack.worker, "patient")
    async with fake_server(latency=A_ROW) as fake:
        run = await run_in_the_middle(stack, mill, fake, rows=ROWS)
        lease = stack.run(run)["state"]["state_details"]["deployment_concurrency_lease_id"]
        stack.server.kill()
        before = Asked(fake).finished
        await asyncio.sleep(AWAY_S)
        assert Asked(fake).finished > before, "nothing of a row goes through Prefect"
        await asyncio.to_thread(stack.server.start)
        # A run does so every 225 s, and would be ended if it could not.
        stack.server.ask("POST", f"/v2/concurrency_limits/leases/{lease}/renew", {"lease_duration": 300})
        found = await asyncio.to_thread(stack.wait, run)
    assert (found["state"]["name"], found["run_count"]) == ("Completed", 1)
    assert len(mill.rows()) == len(Asked(fake).requests) == ROWS
    await asyncio.to_thread(worker.stop)


async def test_a_server_that_does_not_come_back_while_the_run_lives(stack, mill, fake_server) -> None:
    """All is sealed without it. What was asked in vain is nothing, and the run is Crashed once a server is there."""
    worker = await asyncio.to_thread(stack.worker, "orphaned")
    async with fake_server(latency=A_ROW) as fake:
        run = await run_in_the_middle(stack, mill, fake, rows=ROWS)
        (child,) = stack.children(worker)
        stack.server.kill()
        await until(lambda: mill.manifest is not None)
        await asyncio.to_thread(worker.kill)
        os.kill(child, signal.SIGKILL)
        await asyncio.to_thread(stack.server.start)
        found = await asyncio.to_thread(stack.wait, run)
        assert found["state"]["name"] == "Crashed"
        await asyncio.to_thread(stack.worker, "adopting")
        stack.retry(run)
        await asyncio.to_thread(stack.wait, run, lambda run: run["state"]["type"] == "COMPLETED")
    assert len(mill.rows()) == len(Asked(fake).requests) == ROWS
