"""Rejudge: what is stored under the present rules. No request."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from prefect import task

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.rejudge import Rejudged
from draftmill.dataset.rejudge import rejudge as rejudge_rows
from draftmill.dataset.seal import Change, Tally
from draftmill.dataset.stored import row_counts
from draftmill.judging.judged import Rules, judged_table
from draftmill.judging.structure import structures_from_json
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import Verdict
from draftmill.rendering.prepare import Variants
from draftmill.reporting.drift_report import sealed_report
from draftmill.reporting.summary import Summary
from draftmill.workspace import workspace
from tasks.seal import commit, made_by


async def rejudge(manifest: Manifest, recipe: Recipe, variants: Variants) -> Summary:
    """Seals the rows that changed sides; `rejudged` counts them."""
    listener().stage(f"judging {manifest.counts['good_rows'] + manifest.counts['quarantined_rows']} stored rows")
    storage = workspace().storage

    # Rows of a variant that the recipe no longer has: by the structure they were sealed with.
    structures = structures_from_json(manifest.structures)
    structures |= {name: prepared.structure for name, prepared in variants.items()}

    def judge_table(table: Any) -> list[Verdict | None]:
        return judged_table(table, structures, Rules(recipe.on_truncated, recipe.degenerate)).verdicts

    # A closure, as in tasks/seal.py: a manifest is no receipt.
    @task(name="rejudge", task_run_name="judge the stored rows again", persist_result=False)
    async def rejudge_stored() -> Rejudged:
        return await asyncio.to_thread(rejudge_rows, storage, manifest, judge_table)

    return await _seal(manifest, await rejudge_stored(), recipe, variants)


async def _seal(manifest: Manifest, rejudged: Rejudged, recipe: Recipe, variants: Variants) -> Summary:
    kept, held = await asyncio.to_thread(row_counts, workspace().storage, manifest)
    rows = Counter(planned=kept + held, kept=kept, held=held, rejudged=rejudged.to_good + rejudged.to_bad)
    summary = Summary(
        recipe.dataset,
        manifest.version,
        rows=rows,
        attempts=manifest.counts.get("attempts", {}),
        rejudged_bad=rejudged.to_bad,
    )

    def counts(tally: Tally) -> dict[str, Any]:
        rows["kept"], rows["held"] = tally.good_rows, tally.held
        summary.attempts = dict(tally.attempts)
        return summary.to_manifest()

    if rejudged.moved:
        sealed = await commit(
            Change(
                good=rejudged.good,
                bad=rejudged.bad,
                dropped=rejudged.moved,
                rejected=manifest.rejected,
                **made_by(recipe, variants, manifest.provenance["servers"]),
                counts=counts,
                failed=manifest.failed,
            )
        )
        summary.manifest, summary.sealed = sealed.manifest.version, sealed.sealed
        summary.drift = sealed_report(sealed)
    return summary
