"""What a person sees in Prefect's UI: names that say what, artifacts; and Retry, which asks only what is missing."""

from __future__ import annotations

import asyncio

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas import FlowRun, TaskRun
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.sorting import FlowRunSort
from prefect.flow_engine import run_flow_async
from prefect.states import Scheduled

from draftmill.serving.faults import Fault
from flows.refresh import refresh

EIGHT = [f"prompt {n}" for n in range(8)]


async def newest_run(client: PrefectClient) -> FlowRun:
    (run,) = await client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
    return run


async def task_runs(client: PrefectClient, run: FlowRun) -> list[TaskRun]:
    """The run's tasks once all have ended: the server learns of them through events, a moment later."""
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
    while True:
        tasks = await client.read_task_runs(flow_run_filter=of_run)
        reported = any(task.name == "report the numbers" for task in tasks)
        if reported and all(task.state is not None and task.state.is_final() for task in tasks):
            return tasks
        await asyncio.sleep(0.2)


async def test_names_say_what_and_artifacts_hold_the_numbers(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake, get_client() as client:
        mill.url = fake.url
        await mill.refresh()
        run = await newest_run(client)
        names = {task.name for task in await task_runs(client, run)}
        artifacts = await client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        )
    assert run.name == "refresh dataset v1"
    assert names == {
        "load prompts",
        "tokenize slice 1/1",
        "plan what is missing",
        "check the servers",
        *(f"{verb} chunk {n}/2" for verb in ("generate", "validate", "upload") for n in (1, 2)),
        "seal the manifest",
        "make the report page",
        "report the numbers",
    }
    assert {artifact.key for artifact in artifacts} == {
        "dataset-gate",
        "dataset-rows",
        "dataset-reasons",
        "dataset-summary",
        "dataset-drift",
        "dataset-progress",
    }


async def test_retry_of_a_failed_run_runs_only_the_failed_chunk(mill, fake_server) -> None:
    """The UI's Retry: the same flow run, scheduled again. Stages that succeeded are Cached, finished rows kept."""
    mill.prompts(EIGHT)
    async with fake_server() as fake, get_client() as client:
        mill.url = fake.url
        # The second chunk of four rows: requests 6 to 9 behind the canary, asked one at a time.
        fake.rule = lambda number, request: Fault.ERROR_500 if number in (7, 8) else None
        options = {"engine__retries": 0, "engine__in_flight": 1}
        data = await mill.refresh(**options)
        assert (data["state"], data["summary"]["rows"]["failed"]) == ("RowsMissing", 2)
        run = await newest_run(client)
        assert [t.name for t in await task_runs(client, run) if t.state_name == "Failed"] == ["generate chunk 2/2"]

        await client.set_flow_run_state(run.id, Scheduled(message="Retried"), force=True)
        before, fake.rule = len(fake.log), None
        parameters = {"recipe": mill.recipe(**options), "plan_only": False, "again": None}
        retried = await client.read_flow_run(run.id)
        state = await run_flow_async(refresh, flow_run=retried, parameters=parameters, return_type="state")
        asked = len(fake.log) - before - 1  # the canary
        assert (state.name, asked, len(mill.rows())) == ("Completed", 2, 8)
        assert (await client.read_flow_run(run.id)).run_count == 2
