"""Fan-out: a refresh whose rows are asked by many machines, each a partition, and sealed once."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

from prefect import State, flow
from prefect.runtime import flow_run
from pydantic import Field

from draftmill.generation.night import night_until
from draftmill.workspace import open_workspace
from flows.parameters import Changes, Reasons, RecipeFile, RecipeForm, Until, chosen_recipe, recipe_label
from flows.refresh import refresh_stages
from tasks.ending import followed
from tasks.follow import about
from tasks.load import load
from tasks.partitions import Elsewhere


def _run_name() -> str:
    given = flow_run.parameters
    return f"fan-out {recipe_label(given['recipe'], given['recipe_file'])}".rstrip()


@flow(name="fan-out", flow_run_name=_run_name, persist_result=False)
@followed
async def fan_out(
    recipe: RecipeForm = None,
    recipe_file: RecipeFile = None,
    changes: Changes = None,
    partitions: Annotated[int, Field(ge=1, le=1000)] = 2,
    again: Reasons = None,
    until: Until = None,
    deployment: str = "partition/partition",
) -> State[dict[str, Any]]:
    """Bring a dataset up to its recipe with several machines.

    Args:
        recipe: The whole run. engine.in_flight is the budget of all machines together.
        recipe_file: In place of the recipe: a YAML file that this run's worker can read.
        changes: Single values on top of either, as key=value: sampling.temperature=0.6
        partitions: Runs that ask at the same time, at most one for each chunk.
        again: Reason codes whose quarantined rows are asked once more.
        until: A time of day (06:00) or a span (90m): what is done by then is sealed. A retry counts anew.
        deployment: The one that the partitions are runs of.
    """
    night = night_until(until, now=datetime.now(), now_s=time.monotonic())
    chosen = await chosen_recipe(recipe, recipe_file, changes)
    about(f"fan-out {chosen.label}", chosen.dataset)
    async with open_workspace(chosen.dataset, chosen.commit):
        loaded = await load(chosen)
        elsewhere = Elsewhere(partitions, deployment)
        return await refresh_stages(chosen, loaded, again=again or [], night=night, generate=elsewhere)
