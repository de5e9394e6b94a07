"""Cancel in Prefect's UI: the worker's process gets SIGTERM; rows in flight are aborted, finished ones are kept."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL
from prefect.states import Cancelling

from draftmill.serving.fake import Latency
from flows.refresh import refresh

ROWS = 12
IN_FLIGHT = 4


async def test_a_cancelled_run_aborts_what_is_in_flight_and_the_next_asks_only_the_rest(mill, fake_server) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(latency=Latency(first_s=1.0)) as fake, get_client() as client:
        mill.url = fake.url
        recipe = mill.recipe(engine__in_flight=IN_FLIGHT)
        parameters = {"recipe": recipe.model_dump(mode="json")}
        run = await client.create_flow_run(refresh, parameters=parameters)
        # What a worker starts for a deployed run.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "prefect.engine",
            env={
                **os.environ,
                "PREFECT_API_URL": PREFECT_API_URL.value(),
                "PREFECT__FLOW_RUN_ID": str(run.id),
                "PREFECT__FLOW_ENTRYPOINT": "flows.refresh:refresh",
            },
            stderr=asyncio.subprocess.DEVNULL,
        )
        while len(fake.log) < 1 + 2 * IN_FLIGHT:  # the canary, a finished round, one in flight
            assert process.returncode is None
            await asyncio.sleep(0.01)
        await client.set_flow_run_state(run.id, Cancelling(), force=True)
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)
        assert fake.stats()["in_flight"] == 0, "nothing goes on for a client that has left"
        finished = sum(entry.status == 200 for entry in fake.log[1:])
        before = len(fake.log)
        data = await mill.refresh(engine__in_flight=IN_FLIGHT)
        asked = len(fake.log) - before - 1
    assert data["state"] == "Completed"
    # Answers sent in the moment of the signal may not have been read any more.
    assert ROWS - finished <= asked <= ROWS - finished + IN_FLIGHT
    assert len(mill.rows()) == ROWS


async def test_a_run_of_the_command_line_ends_by_the_uis_cancel_as_by_ctrl_c(mill, fake_server, start_run) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(latency=Latency(first_s=1.5)) as fake, get_client() as client:
        mill.url = fake.url
        recipe_file = mill.recipe_file(engine__in_flight=2)
        process = await start_run(recipe_file, constants={"flows.launch.LOOK_EVERY_S": 0.2})
        while len(fake.log) < 1 + 2 * 2:
            assert process.returncode is None
            await asyncio.sleep(0.01)
        runs = await client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
        await client.set_flow_run_state(runs[0].id, Cancelling(), force=True)
        assert await asyncio.wait_for(process.wait(), 30) == 5
        assert fake.stats()["in_flight"] == 0
        state = (await client.read_flow_run(runs[0].id)).state
        finished = sum(entry.status == 200 for entry in fake.log[1:])
        before = len(fake.log)
        assert finished < ROWS
        data = await mill.refresh(engine__in_flight=2)
        asked = len(fake.log) - before - 1
    said = Path(recipe_file).with_suffix(".err").read_text()
    assert state is not None
    assert state.name == "Cancelled"
    assert "stopped before all rows were asked" in said
    assert "Traceback" not in said
    assert data["state"] == "Completed"
    # Answers sent in the moment of the signal may not have been read any more.
    assert ROWS - finished <= asked <= ROWS - finished + 2
    assert len(mill.rows()) == ROWS
