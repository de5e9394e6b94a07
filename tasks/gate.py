"""Gate: the servers against the recipe, before anything is asked of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.artifacts import acreate_table_artifact

from draftmill.dataset.manifest import newest, servers_of
from draftmill.gate import look
from draftmill.generation.night import Night
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, artifact_key


async def gate(recipe: Recipe, variants: Variants, *, night: Night) -> Receipt:
    """`{reports: [...]}`, one for each server. Raises GateRefused; RunStopped when the night ends first."""
    listener().stage("looking at the server")

    # A closure, as in tasks/seal.py: what is prepared is no receipt. Never cached, a server may be another one soon.
    @task(name="gate", task_run_name="check the servers", persist_result=False)
    async def check_servers() -> dict[str, Any]:
        return await _check(recipe, variants, night)

    receipt: Receipt = await check_servers()
    return receipt


async def _check(recipe: Recipe, variants: Variants, night: Night) -> dict[str, Any]:
    last = servers_of(await in_thread(newest, workspace().storage))
    seen = await look(recipe, variants, last=last, night=night)
    table = [{key: str(value) for key, value in asdict(check).items()} for check in seen.checks]
    await acreate_table_artifact(
        table=table,
        key=artifact_key(recipe.dataset, "gate"),
        description="What the servers say of themselves, their tokenizers against ours, and the canary",
    )
    seen.refuse(night=night)
    return {"reports": [asdict(report) for report in seen.reports]}
