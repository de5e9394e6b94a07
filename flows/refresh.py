"""Refresh: a recipe's prompts against its dataset; what is missing is generated, checked and sealed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from draftmill.recipe import Recipe
from draftmill.rendering.prepare import prepare
from draftmill.reporting.summary import planned_summary
from draftmill.workspace import open_workspace
from tasks.chunks import run_chunks
from tasks.gate import gate
from tasks.load import load
from tasks.plan import plan
from tasks.report import report
from tasks.seal import seal
from tasks.tokenize_prompts import tokenize_prompts

NO_GATE: dict[str, Any] = {"engines": {}, "reports": []}
"""A run that asks nothing needs no server."""


def _run_name() -> str:
    recipe: Recipe = flow_run.parameters["recipe"]
    return f"refresh {recipe.label}"


@flow(name="refresh", flow_run_name=_run_name, persist_result=False)
async def refresh(recipe: Recipe, plan_only: bool = False, again: list[str] | None = None) -> State[dict[str, Any]]:
    """Bring a dataset up to its recipe.

    Args:
        recipe: The whole run. A dataset that is complete already asks nothing and needs no server.
        plan_only: Stop before anything is generated.
        again: Reason codes whose quarantined rows are asked once more.
    """
    async with open_workspace(recipe.dataset):
        return await refresh_stages(recipe, plan_only=plan_only, again=again or [])


async def refresh_stages(recipe: Recipe, *, plan_only: bool = False, again: list[str], rejudged: int = 0) -> State[Any]:
    """The stages in an open workspace; `rejudged`: rows that a rerun has moved before."""
    started_s = time.monotonic()
    loaded = await load(recipe)
    prepared = await asyncio.to_thread(prepare, recipe)
    rendered = await tokenize_prompts(loaded, recipe, prepared.renders)
    planned = await plan(loaded, rendered, recipe, again)
    if plan_only:
        return await report(planned_summary(recipe.dataset, planned))
    passed = await gate(recipe) if planned["to_ask"] else NO_GATE
    outcome = await run_chunks(planned, passed, recipe, prepared)
    summary = await seal(planned, passed, outcome, recipe, prepared)
    summary.rows["rejudged"] = rejudged
    summary.seconds = time.monotonic() - started_s
    return await report(summary, outcome)
