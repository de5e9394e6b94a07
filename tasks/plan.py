"""Plan: the rendered rows against the newest manifest and the unfinished completions.

Not cached: it reads what others may have written a moment ago. What it decides
is `draftmill.dataset.plan`; here its chunks become objects.
"""

from __future__ import annotations

import asyncio
from typing import Any

from prefect import task

from draftmill.dataset.chunks import plan_run
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.workspace import workspace
from tasks.receipts import Receipt


async def plan(loaded: Receipt, rendered: list[Receipt], recipe: Recipe, again: list[str]) -> Receipt:
    """The plan's receipt; `again`: reasons of quarantined rows to ask once more."""
    listener().stage("comparing with the dataset")
    receipt: Receipt = await plan_rows(loaded, rendered, recipe, again)
    return receipt


@task(name="plan", task_run_name="plan what is missing", persist_result=False)
async def plan_rows(loaded: Receipt, rendered: list[Receipt], recipe: Recipe, again: list[str]) -> dict[str, Any]:
    """The task."""
    paths = [part["rows"]["path"] for part in rendered]
    rejected = [part["rejected"]["path"] for part in (loaded, *rendered) if part["rejected"]]
    return await asyncio.to_thread(
        plan_run, workspace().storage, recipe, rows=paths, rejected=rejected, again=frozenset(again)
    )
