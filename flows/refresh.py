"""Refresh: a recipe's prompts against its dataset; what is missing is generated, checked and sealed."""

from __future__ import annotations

import asyncio
import functools
import time
from datetime import datetime
from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from draftmill.generation.night import NO_END, Night, night_until
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import prepare, renders
from draftmill.reporting.since import Since
from draftmill.reporting.summary import Summary, planned_summary
from draftmill.workspace import open_for_plan, open_workspace
from flows.parameters import Changes, Reasons, RecipeFile, RecipeForm, Until, chosen_recipe, recipe_label
from tasks.ending import followed
from tasks.follow import about
from tasks.generated import Generate, generate_here
from tasks.load import load
from tasks.plan import compare, plan, plan_rows
from tasks.rejudge import rejudge_changed
from tasks.report import report, report_plan
from tasks.seal import seal
from tasks.tokenize_prompts import tokenize_prompts


def _run_name() -> str:
    given = flow_run.parameters
    verb = "plan" if given["plan_only"] else "refresh"
    return f"{verb} {recipe_label(given['recipe'], given['recipe_file'])}".rstrip()


@flow(name="refresh", flow_run_name=_run_name, persist_result=False)
@followed
async def refresh(
    recipe: RecipeForm = None,
    recipe_file: RecipeFile = None,
    changes: Changes = None,
    plan_only: bool = False,
    again: Reasons = None,
    until: Until = None,
) -> State[dict[str, Any]]:
    """Bring a dataset up to its recipe.

    Args:
        recipe: The whole run. A dataset that is complete already asks nothing and needs no server.
        recipe_file: In place of the recipe: a YAML file that the worker can read.
        changes: Single values on top of either, as key=value: sampling.temperature=0.6
        plan_only: Stop before anything is generated.
        again: Reason codes whose quarantined rows are asked once more.
        until: A time of day (06:00) or a span (90m): what is done by then is sealed. A retry counts anew.
    """
    night = night_until(until, now=datetime.now(), now_s=time.monotonic())
    chosen = await chosen_recipe(recipe, recipe_file, changes)
    about(f"{'plan' if plan_only else 'refresh'} {chosen.label}", chosen.dataset)
    async with open_for_plan(chosen.dataset) if plan_only else open_workspace(chosen.dataset, chosen.commit):
        loaded = await load(chosen)
        return await refresh_stages(chosen, loaded, plan_only=plan_only, again=again or [], night=night)


async def refresh_stages(
    recipe: Recipe,
    loaded: dict[str, Any],
    *,
    again: list[str],
    plan_only: bool = False,
    night: Night = NO_END,
    since: Since | None = None,
    rejudged: Summary | None = None,
    generate: Generate = generate_here,
) -> State[Any]:
    """The stages behind load, in an open workspace; `since`, `rejudged`: what a rerun has found and done before.

    `generate`: who asks for what is missing.
    """
    started_s = time.monotonic()
    variants = await asyncio.to_thread(prepare, recipe)
    rendered = await tokenize_prompts(loaded, recipe, renders(variants))
    since = since or await compare(recipe, variants)
    if not plan_only:
        rejudged = rejudged or await rejudge_changed(since, recipe, variants)
    planned = await plan(loaded, rendered, recipe, again, since=since, rejudged=rejudged, plan_only=plan_only)
    if plan_only:
        return report_plan(planned_summary(recipe.dataset, planned), planned["lines"])
    replan = functools.partial(plan_rows, loaded, rendered, recipe, again)
    done = await generate(planned, recipe, variants, night=night, replan=replan)
    judged = rejudged.manifest if rejudged else None
    summary = await seal(done.plan, done.gate, done.outcome, recipe, variants, judged=judged)
    summary.seconds = time.monotonic() - started_s
    if rejudged:
        summary.add(rejudged)
    return await report(summary, done.outcome, plan=planned)
