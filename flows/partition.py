"""Partition: one machine's share of a fan-out. The fan-out starts it, counts its rows and seals them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from draftmill.recipe import Recipe
from draftmill.workspace import open_partition
from tasks.ending import followed
from tasks.partition import ask_share, end_state, night_at


def _run_name() -> str:
    given = flow_run.parameters
    return f"partition {given['number']}/{given['total']} of {given['recipe'].label}"


@flow(name="partition", flow_run_name=_run_name, persist_result=False)
@followed
async def partition(
    recipe: Recipe,
    number: int,
    total: int,
    share: str,
    report: str,
    ends_at: datetime | None = None,
    until: str = "",
) -> State[dict[str, Any]]:
    """Ask one share of a fan-out's rows. Only a fan-out starts it.

    Args:
        recipe: The fan-out's, with this partition's share of engine.in_flight.
        number: Which of the partitions, from 1.
        total: How many there are.
        share: Path of the object that names its chunks, in the dataset.
        report: Path of the object that it tells in how it stands.
        ends_at: When the fan-out's night ends; no end without it.
        until: The same as it was given.
    """
    night = night_at(ends_at, until)
    async with open_partition(recipe.dataset, recipe.commit, number=number) as tails:
        outcome = await ask_share(share, report, recipe, night=night, tails=tails)
    return end_state(outcome)
