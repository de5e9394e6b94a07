"""Plan: the rendered rows against the newest manifest and the unfinished completions.

Not cached: it reads what others may have written a moment ago. What it decides
is `draftmill.dataset.plan`; here its chunks become objects, and it is told in
plain words before anything is generated.
"""

from __future__ import annotations

import logging
from typing import Any

from prefect import task

from draftmill.dataset.chunks import plan_run
from draftmill.dataset.manifest import newest
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants
from draftmill.reporting.plan_lines import plan_lines
from draftmill.reporting.since import Since, since
from draftmill.reporting.summary import Summary
from draftmill.workspace import in_thread, workspace
from tasks.follow import aims_at
from tasks.receipts import Receipt

log = logging.getLogger("draftmill.plan")


async def compare(recipe: Recipe, variants: Variants) -> Since:
    """What is different from the newest manifest."""
    structures = {name: prepared.structure for name, prepared in variants.items()}
    rendering = next(iter(variants.values())).provenance  # tokenizer and template are the same for all
    manifest = await in_thread(newest, workspace().storage)
    aims_at((manifest.version if manifest else 0) + 1)
    return since(manifest, recipe, structures, rendering)


async def plan(
    loaded: Receipt,
    rendered: list[Receipt],
    recipe: Recipe,
    again: list[str],
    *,
    since: Since,
    rejudged: Summary | None,
    plan_only: bool,
) -> Receipt:
    """The plan's receipt, with the plan in plain words as `lines`; `again`: reasons of quarantined rows to ask once
    more."""
    listener().stage("comparing with the dataset")
    receipt: Receipt = await plan_rows(loaded, rendered, recipe, again)
    receipt["lines"] = plan_lines(receipt, since, removed=recipe.removed, again=again, rejudged=rejudged)
    for line in receipt["lines"]:
        # A plan alone is data: whoever asked for it gets it as the flow's state.
        (log.info if plan_only else listener().stage)(line)
    return receipt


@task(name="plan", task_run_name="plan what is missing", persist_result=False)
async def plan_rows(loaded: Receipt, rendered: list[Receipt], recipe: Recipe, again: list[str]) -> dict[str, Any]:
    """The task."""
    paths = [part["rows"]["path"] for part in rendered]
    refused = [*loaded["rejected"], *(part["rejected"] for part in rendered if part["rejected"])]
    rejected = [ref["path"] for ref in refused]
    return await in_thread(plan_run, workspace().storage, recipe, rows=paths, rejected=rejected, again=frozenset(again))
