"""Seal: the chunks' objects on top of the newest manifest, as the next version.

The last write of a run, and the only one that makes anything part of the
dataset. Counts must close before it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from prefect import task

from draftmill.dataset.commit import commit as commit_change
from draftmill.dataset.manifest import ObjectRef, newest
from draftmill.dataset.plan import SUCCESSION
from draftmill.dataset.recount import Planned
from draftmill.dataset.seal import Change, Sealed
from draftmill.dataset.stored import REQUESTS, listed_table
from draftmill.identity import row_identity
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants, structures_json
from draftmill.reporting.drift_report import sealed_report
from draftmill.reporting.final_summary import final_summary
from draftmill.reporting.provenance import provenance
from draftmill.reporting.summary import Summary, add_chunk, check_closed, planned_summary
from draftmill.workspace import in_thread, workspace
from tasks.chunks import RunOutcome
from tasks.receipts import Receipt


async def seal(
    plan: Receipt,
    gate: Receipt,
    outcome: RunOutcome,
    recipe: Recipe,
    variants: Variants,
    *,
    judged: int | None = None,
) -> Summary:
    """The run's numbers, sealed. A run that brings nothing makes no manifest. `judged`: as in Change."""
    summary = run_summary(plan, outcome, recipe)
    check_closed(summary)
    uploads = [chunk.uploaded for chunk in outcome.chunks if chunk.uploaded]
    change = Change(
        good=_objects(uploads, "shard"),
        bad=_objects(uploads, "quarantine"),
        rejected=[ObjectRef.model_validate(plan["rejected"])] if plan["rejected"] else [],
        dropped=await in_thread(_planned_table, plan["dropped"], REQUESTS),
        succession=await in_thread(_planned_table, plan["succession"], SUCCESSION),
        planned=Planned(plan["manifest"], plan["slices"], [chunk["rows"]["path"] for chunk in plan["chunks"]]),
        judged=judged,
        **await in_thread(_made_now, recipe, variants, gate, outcome),
        counts=lambda tally: final_summary(summary, tally).to_manifest(),
        failed=[row for chunk in outcome.chunks if chunk.generated for row in chunk.generated["failures"]],
    )
    # Without a change too, for the numbers; only a first run that got no row has nothing to seal.
    if change.good or change.bad or plan["manifest"]:
        listener().stage("sealing")
        sealed = await commit(change)
        summary = final_summary(summary, sealed.tally)
        summary.manifest, summary.sealed = sealed.manifest.version, sealed.sealed
        summary.drift = sealed_report(sealed)
    return summary


def _made_now(recipe: Recipe, variants: Variants, gate: Receipt, outcome: RunOutcome) -> dict[str, Any]:
    made = made_by(recipe, variants, _servers(gate))
    if course := outcome.counts.course.to_json():
        made["provenance"]["course"] = course
    return made


def made_by(recipe: Recipe, variants: Variants, servers: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of a Change that say how its rows were made. Blocks."""
    recipes = {name: prepared.recipe for name, prepared in variants.items()}
    return {
        "recipe": recipe.model_dump(mode="json"),
        "identity": {name: row_identity(alone.model, alone.sampling) for name, alone in recipes.items()},
        "structures": structures_json(variants),
        # Tokenizer and template are the same for all.
        "provenance": provenance(next(iter(variants.values())).provenance, servers),
    }


def _servers(gate: Receipt) -> list[dict[str, Any]]:
    """The gate's reports; a run that asked nothing keeps what its parent knew of the servers."""
    parent = None if gate["reports"] else newest(workspace().storage)
    servers: list[dict[str, Any]] = parent.provenance["servers"] if parent else gate["reports"]
    return servers


async def commit(change: Change) -> Sealed:
    """The commit as a task of its own; afterwards the journal forgets what is sealed."""
    space = workspace()

    # A closure: the change is no receipt, and Prefect would hash and store an argument.
    @task(name="seal", task_run_name="seal the manifest", persist_result=False)
    async def seal_manifest() -> Sealed:
        return await in_thread(commit_change, space.storage, space.journal, change)

    sealed: Sealed = await seal_manifest()
    return sealed


def run_summary(plan: Receipt, outcome: RunOutcome, recipe: Recipe) -> Summary:
    """A run's numbers before it is sealed."""
    summary = planned_summary(recipe.dataset, plan)
    summary.rows["generated"] = summary.rows["resumed"] = 0
    summary.requests, summary.retries = outcome.counts.requests, outcome.counts.retries
    for chunk in outcome.chunks:
        add_chunk(
            summary,
            chunk.chunk,
            opened=chunk.opened,
            cached=chunk.cached,
            generated=chunk.generated,
            validated=chunk.validated if chunk.uploaded else None,
        )
    summary.left = outcome.left
    if outcome.before is not None:
        summary.found(outcome.before, outcome.tokens)
    return summary


def _planned_table(ref: dict[str, Any] | None, schema: pa.Schema) -> pa.Table:
    """What the plan refers to; empty where it has nothing of the kind."""
    return listed_table(workspace().storage, ref["path"], schema.names) if ref else schema.empty_table()


def _objects(uploads: list[Receipt], name: str) -> list[ObjectRef]:
    return [ObjectRef.model_validate(upload[name]) for upload in uploads if upload[name]]
