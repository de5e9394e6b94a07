"""Seal: the chunks' objects on top of the newest manifest, as the next version.

The last write of a run, and the only one that makes anything part of the
dataset. Counts must close before it.
"""

from __future__ import annotations

import asyncio

from prefect import task

from draftmill.dataset.commit import commit as commit_change
from draftmill.dataset.manifest import ObjectRef
from draftmill.dataset.seal import Change, Sealed, Tally
from draftmill.identity import row_identity
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Prepared
from draftmill.reporting.provenance import provenance
from draftmill.reporting.summary import Summary, add_chunk, check_closed, planned_summary
from draftmill.workspace import workspace
from tasks.chunks import RunOutcome
from tasks.receipts import Receipt


async def seal(plan: Receipt, gate: Receipt, outcome: RunOutcome, recipe: Recipe, prepared: Prepared) -> Summary:
    """The run's numbers, sealed. A run that brings nothing makes no manifest."""
    summary = run_summary(plan, outcome, recipe)
    check_closed(summary)
    uploads = [chunk.uploaded for chunk in outcome.chunks if chunk.uploaded]
    change = Change(
        good=_objects(uploads, "shard"),
        bad=_objects(uploads, "quarantine"),
        rejected=[ObjectRef.model_validate(plan["rejected"])] if plan["rejected"] else [],
        dropped=frozenset((key, attempt) for key, attempt in plan["dropped"]),
        protected=frozenset(plan["protected"]),
        recipe=recipe.model_dump(mode="json"),
        identity=row_identity(recipe.model, recipe.sampling),
        structure=prepared.structure.to_json(),
        provenance=provenance(prepared.provenance, gate["reports"]),
        counts=lambda tally: _final(summary, tally).to_json(),
        failed=[row for chunk in outcome.chunks if chunk.generated for row in chunk.generated["failures"]],
    )
    if change.good or change.bad or change.dropped:
        listener().stage("sealing")
        sealed = await commit(change)
        _final(summary, sealed.tally)
        summary.manifest, summary.sealed = sealed.manifest.version, sealed.sealed
    return summary


async def commit(change: Change) -> Sealed:
    """The commit as a task of its own; afterwards the journal forgets what is sealed."""
    space = workspace()

    # A closure: the change is no receipt, and Prefect would hash and store an argument.
    @task(name="seal", task_run_name="seal the manifest", persist_result=False)
    async def seal_manifest() -> Sealed:
        return await asyncio.to_thread(commit_change, space.storage, space.journal, change)

    sealed: Sealed = await seal_manifest()
    return sealed


def run_summary(plan: Receipt, outcome: RunOutcome, recipe: Recipe) -> Summary:
    """A run's numbers before it is sealed."""
    summary = planned_summary(recipe.dataset, plan)
    summary.rows["generated"] = summary.rows["resumed"] = 0
    summary.requests, summary.retries = outcome.requests, outcome.retries
    for chunk in outcome.chunks:
        add_chunk(
            summary,
            chunk.chunk,
            cached=chunk.cached,
            generated=chunk.generated,
            validated=chunk.validated if chunk.uploaded else None,
        )
    return summary


def _objects(uploads: list[Receipt], name: str) -> list[ObjectRef]:
    return [ObjectRef.model_validate(upload[name]) for upload in uploads if upload[name]]


def _final(summary: Summary, tally: Tally) -> Summary:
    rows = summary.rows
    rows["superseded"], rows["dropped"] = tally.superseded, tally.dropped
    # Good rows that are neither kept nor new: their prompt is gone, or their successor is not in.
    rows["carried"] = tally.good_rows - rows["kept"] - rows["ok"]
    return summary
