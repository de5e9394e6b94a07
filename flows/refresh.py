"""Refresh: a recipe's prompts against its dataset; what is missing is generated, checked and sealed."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from draftmill.generation.night import NO_END, Night, night_until
from draftmill.recipe import Recipe, anchored
from draftmill.rendering.prepare import prepare, renders
from draftmill.reporting.since import Since
from draftmill.reporting.summary import Summary, planned_summary
from draftmill.workspace import open_for_plan, open_workspace
from tasks.chunks import run_chunks
from tasks.gate import gate
from tasks.load import load
from tasks.plan import compare, plan
from tasks.rejudge import rejudge_changed
from tasks.report import report, report_plan
from tasks.seal import seal
from tasks.tokenize_prompts import tokenize_prompts

NO_GATE: dict[str, Any] = {"reports": []}
"""A run that asks nothing needs no server."""


def _run_name() -> str:
    recipe: Recipe = flow_run.parameters["recipe"]
    return f"refresh {recipe.label}"


@flow(name="refresh", flow_run_name=_run_name, persist_result=False)
async def refresh(
    recipe: Recipe, plan_only: bool = False, again: list[str] | None = None, until: str | None = None
) -> State[dict[str, Any]]:
    """Bring a dataset up to its recipe.

    Args:
        recipe: The whole run. A dataset that is complete already asks nothing and needs no server.
        plan_only: Stop before anything is generated.
        again: Reason codes whose quarantined rows are asked once more.
        until: A time of day (06:00) or a span (90m). What is done by then is sealed, the rest is pending; a retry
            counts anew.
    """
    night = night_until(until, now=datetime.now(), now_s=time.monotonic())
    recipe = anchored(recipe)
    async with open_for_plan(recipe.dataset) if plan_only else open_workspace(recipe.dataset, recipe.commit):
        loaded = await load(recipe)
        return await refresh_stages(recipe, loaded, plan_only=plan_only, again=again or [], night=night)


async def refresh_stages(
    recipe: Recipe,
    loaded: dict[str, Any],
    *,
    again: list[str],
    plan_only: bool = False,
    night: Night = NO_END,
    since: Since | None = None,
    rejudged: Summary | None = None,
) -> State[Any]:
    """The stages behind load, in an open workspace; `since`, `rejudged`: what a rerun has found and done before."""
    started_s = time.monotonic()
    variants = await asyncio.to_thread(prepare, recipe)
    rendered = await tokenize_prompts(loaded, recipe, renders(variants))
    since = since or await compare(recipe, variants)
    if not plan_only:
        rejudged = rejudged or await rejudge_changed(since, recipe, variants)
    planned = await plan(loaded, rendered, recipe, again, since=since, rejudged=rejudged, plan_only=plan_only)
    if plan_only:
        return report_plan(planned_summary(recipe.dataset, planned), planned["lines"])
    passed = await gate(recipe, variants, night=night) if planned["to_ask"] else NO_GATE
    outcome = await run_chunks(planned, passed, recipe, variants, night=night)
    summary = await seal(planned, passed, outcome, recipe, variants, judged=rejudged.manifest if rejudged else None)
    summary.seconds = time.monotonic() - started_s
    if rejudged:
        summary.add(rejudged)
    return await report(summary, outcome, plan=planned["lines"])
