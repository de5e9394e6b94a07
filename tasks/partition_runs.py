"""A fan-out's partitions as runs of a deployment: started, watched to their end, cancelled with their parent.

A run that Prefect calls Running may be dead, with its machine: a partition whose
report stands still (`partitions.Silence`) is set Crashed here, so that a fan-out
never waits for ever. One that no worker takes for START_S is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
from prefect import State, get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Cancelling, Crashed

from draftmill.dataset.partition_objects import FOLDER, put_share, read_report
from draftmill.errors import RecipeError
from draftmill.generation.night import Night
from draftmill.generation.partitions import BEAT_S, START_S, Report, Silence
from draftmill.progress import Rows, listener
from draftmill.recipe import Recipe
from draftmill.workspace import in_thread, workspace

LOOK_EVERY_S = 2.0
"""Seconds between looks at the runs: short beside a partition's start, and one small request each."""

CANCEL_S = 20.0
"""Seconds for cancelled partitions to end: rows are aborted and kept in far less, and a cancelled parent has 30."""

LEFT_BEHIND_S = 90.0
"""Seconds for what an earlier run of the fan-out has left behind to end, with its rows in the dataset."""

PAGE = 100
"""Runs read at once: the server gives at most 200."""

log = logging.getLogger("draftmill.fan_out")


@dataclass(slots=True)
class Partition:
    """One of them. `report`: the newest; `state`: of its run as Prefect last said; `lost`: it ended, and not because
    its rows or something that stops all of them did."""

    name: str
    run: UUID
    path: str
    silence: Silence
    created_s: float
    report: Report = field(default_factory=Report)
    state: str = "Scheduled"
    over: bool = False
    read_s: float = float("-inf")

    @property
    def lost(self) -> bool:
        return not self.report.ended or not (self.report.stopped is None or self.report.speaks_for_all)


async def start(
    deployment: str, shares: Sequence[dict[str, Any]], in_flight: Sequence[int], recipe: Recipe, night: Night
) -> list[Partition]:
    """A run for each share; `in_flight`: of each."""
    storage, total = workspace().storage, len(shares)
    left_s = night.left_s(time.monotonic())
    ends_at = None if left_s is None else datetime.now(UTC) + timedelta(seconds=left_s)
    begun: list[Partition] = []
    for number, (share, budget) in enumerate(zip(shares, in_flight, strict=True), 1):
        engine = recipe.engine.model_copy(update={"in_flight": budget})
        name, path = f"partition {number}/{total} of {recipe.label}", f"{FOLDER}/{uuid.uuid4().hex}.json"
        parameters = {
            "recipe": recipe.model_copy(update={"engine": engine}).model_dump(mode="json"),
            "number": number,
            "total": total,
            "share": await in_thread(put_share, storage, share),
            "report": path,
            "ends_at": ends_at and ends_at.isoformat(),
            "until": night.until,
        }
        try:
            run = await arun_deployment(deployment, parameters=parameters, flow_run_name=name, timeout=0)
        except BaseException as error:
            async with get_client() as client:
                await cancel(client, [each.run for each in begun], wait_s=CANCEL_S)
            if isinstance(error, ObjectNotFound):
                raise _no_deployment(deployment) from None
            raise
        begun.append(Partition(name, run.id, path, Silence(time.monotonic()), time.monotonic()))
    return begun


def _no_deployment(name: str) -> RecipeError:
    return RecipeError(
        "there is no such deployment for the partitions",
        value=name,
        expected="flow/deployment, as `prefect deployment ls` shows it",
        remedy="deploy it (docs/many-machines.md), or correct the parameter `deployment`",
    )


async def watch(partitions: Sequence[Partition], *, night: Night, to_ask: int) -> None:
    """Until all have ended. Cancelled, it cancels them, and waits a while for their rows."""
    started_s = time.monotonic()
    async with get_client() as client:
        try:
            while going := [each for each in partitions if not each.over]:
                await asyncio.sleep(LOOK_EVERY_S)
                for each in going:
                    await _look(client, each, night)
                _tell(partitions, to_ask, time.monotonic() - started_s)
        except BaseException:
            await cancel(client, [each.run for each in partitions if not each.over], wait_s=CANCEL_S)
            raise


async def end_left_behind(recipe: Recipe) -> bool:
    """Cancels partitions of this dataset whose fan-out runs no more, or is this one's earlier try; whether there were
    any. They would ask what is asked again now."""
    async with get_client() as client:
        orphans = [run.id for run in await _unfinished(client, recipe) if await _is_orphan(client, run)]
        if orphans:
            listener().stage(f"ending {len(orphans)} partitions of an earlier run")
            await cancel(client, orphans, wait_s=LEFT_BEHIND_S)
    return bool(orphans)


async def cancel(client: PrefectClient, runs: Sequence[UUID], *, wait_s: float) -> None:
    """As the UI's button, all at once; waits for their end."""
    await asyncio.gather(*(_set_state(client, run, Cancelling()) for run in runs))
    deadline, left = time.monotonic() + wait_s, list(runs)
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        left = [run for run in left if not await _has_ended(client, run)]


async def _set_state(client: PrefectClient, run: UUID, state: State[Any]) -> bool:
    """Whether the server took it. A run that is deleted needs none."""
    try:
        await client.set_flow_run_state(run, state, force=True)
    except ObjectNotFound:
        return True
    except httpx.HTTPError as error:
        log.warning("Prefect could not be told that partition %s is %s: %s", run, state.name, error)
        return False
    return True


async def _has_ended(client: PrefectClient, run: UUID) -> bool:
    try:
        found = await client.read_flow_run(run)
    except httpx.HTTPError:
        return False
    except ObjectNotFound:
        return True
    return found.state is not None and found.state.is_final()


async def _unfinished(client: PrefectClient, recipe: Recipe) -> list[FlowRun]:
    types = ["SCHEDULED", "PENDING", "RUNNING", "CANCELLING", "PAUSED"]
    runs: list[FlowRun] = []
    while True:
        page = await client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": ["partition"]}}),
            flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": types}}}),
            sort=FlowRunSort.ID_DESC,
            limit=PAGE,
            offset=len(runs),
        )
        runs += page
        if len(page) < PAGE:
            break
    return [run for run in runs if (run.parameters.get("recipe") or {}).get("dataset") == recipe.dataset]


async def _is_orphan(client: PrefectClient, run: FlowRun) -> bool:
    if run.parent_task_run_id is None:
        return True
    try:
        task = await client.read_task_run(run.parent_task_run_id)
        if task.flow_run_id is None or str(task.flow_run_id) == flow_run.id:
            return True
        parent = await client.read_flow_run(task.flow_run_id)
    except ObjectNotFound:
        return True
    except httpx.HTTPError as error:
        log.warning("Prefect does not say whose %s is, and it is left alone: %s", run.name, error)
        return False
    return parent.state is None or not parent.state.is_running()


async def _look(client: PrefectClient, each: Partition, night: Night) -> None:
    now_s = time.monotonic()
    try:
        state = (await client.read_flow_run(each.run)).state
    except ObjectNotFound:
        each.state, each.over = "deleted", True
        return
    except httpx.HTTPError as error:
        log.warning("Prefect does not say how %s is: %s", each.name, error)
        each.silence.blind(now_s)
        return
    assert state is not None, "a run that the server knows has a state"
    # Its message has more lines than a list of partitions can hold.
    first = (state.message or "").split("\n")[0]
    each.state = f"{state.name or state.type.value}: {first}".removesuffix(": ")
    each.over = state.is_final()
    if each.over or now_s - each.read_s >= BEAT_S / 2:
        await _read(each, now_s)
    if not each.over:
        await _heed(client, each, state, now_s, night)


async def _read(each: Partition, now_s: float) -> None:
    each.read_s = now_s
    try:
        report = await in_thread(read_report, workspace().storage, each.path)
    except Exception as error:
        # Whatever it is, a partition that cannot be read need not be dead.
        log.warning("the report of %s cannot be read: %s", each.name, error)
        each.silence.blind(now_s)
        return
    each.silence.heard(report.beat if report else None, now_s)
    each.report = report or each.report


async def _heed(client: PrefectClient, each: Partition, state: State[Any], now_s: float, night: Night) -> None:
    """What must not be waited for any longer."""
    if state.is_scheduled() or state.is_pending():
        each.silence = Silence(now_s)
        over = night.left_s(now_s) == 0
        if over or now_s - each.created_s >= START_S:
            why = "the time given is over" if over else f"no worker took it within {START_S:.0f} s"
            if await _set_state(client, each.run, Cancelling(message=why)):
                each.state, each.over = f"not started, {why}", True
    elif each.silence.lasts(now_s):
        words = "no sign of life in the dataset; its machine or process seems to be dead"
        if await _set_state(client, each.run, Crashed(message=words)):
            each.state, each.over = f"Crashed: {words}", True


def _tell(partitions: Sequence[Partition], to_ask: int, elapsed_s: float) -> None:
    done = sum(each.report.done for each in partitions)
    tokens = sum(each.report.tokens for each in partitions)
    if done:
        listener().rows(Rows(min(done, to_ask), to_ask, tokens, elapsed_s))
