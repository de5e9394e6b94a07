"""Rerun: stored rows judged by the present rules; then, when asked to, failed and named rows generated anew."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from draftmill.dataset.status import existing
from draftmill.dataset.stored_recipe import stored_recipe
from draftmill.errors import RecipeError
from draftmill.recipe import dataset_label
from draftmill.rendering.prepare import prepare
from draftmill.workspace import in_thread, open_workspace
from flows.parameters import Changes, Dataset, Reasons
from flows.refresh import refresh_stages
from tasks.ending import followed
from tasks.follow import about
from tasks.load import load
from tasks.plan import compare
from tasks.rejudge import rejudge
from tasks.report import report


def _run_name() -> str:
    return f"rerun {dataset_label(flow_run.parameters['dataset'])}"


@flow(name="rerun", flow_run_name=_run_name, persist_result=False)
@followed
async def rerun(
    dataset: Dataset, changes: Changes = None, generate: bool = False, reasons: Reasons = None
) -> State[dict[str, Any]]:
    """Judge what is stored again, with 0 requests; with `generate`, ask again for what is missing or named.

    Args:
        dataset: Folder or s3://bucket/prefix. Its recipe is the newest manifest's.
        changes: Other rules on top of that recipe, as key=value: degenerate=off
        generate: Also ask for failed rows and for those quarantined with one of `reasons`.
        reasons: Reason codes; their rows are asked once more, as a new attempt.
    """
    started_s = time.monotonic()
    if reasons and not generate:
        raise RecipeError(
            "reasons cannot be used so",
            value="reasons without generate",
            expected="both, or neither: without generate nothing is asked",
            remedy="set generate, or leave reasons out",
        )
    recipe = await asyncio.to_thread(stored_recipe, dataset, changes or ())
    about(f"rerun {recipe.label}", recipe.dataset)
    async with open_workspace(recipe.dataset, recipe.commit) as space:
        # The source first: a rerun that cannot go on to the end has not yet sealed half of it.
        loaded = await load(recipe) if generate else {}
        variants = await asyncio.to_thread(prepare, recipe)
        manifest = await in_thread(existing, space.storage)
        since = await compare(recipe, variants)
        summary = await rejudge(manifest, recipe, variants, anew=True)
        if generate:
            return await refresh_stages(recipe, loaded, again=reasons or [], since=since, rejudged=summary)
        summary.seconds = time.monotonic() - started_s
        return await report(summary)
