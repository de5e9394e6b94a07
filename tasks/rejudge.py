"""Rejudge: what is stored under the present rules. No request.

What the judging of one manifest by one set of rules gives is a receipt, so that
rules that move no row are not asked of a million rows every night: then there is
nothing to seal that would remember them. `rerun` judges whatever a receipt says.
Where another run seals in between, what it brought is judged as well.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from draftmill.dataset.earlier import earlier_structures
from draftmill.dataset.manifest import Manifest, ObjectRef, read_manifest
from draftmill.dataset.rejudge import moved_requests
from draftmill.dataset.rejudge import rejudge as rejudge_rows
from draftmill.dataset.seal import Change, Tally
from draftmill.dataset.stored import row_counts
from draftmill.judging.changed import recipe_rules, structure_rules
from draftmill.judging.eras import eras
from draftmill.judging.judged import Rules, judged_table
from draftmill.judging.structure import structures_from_json
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import Verdict
from draftmill.rendering.prepare import Variants, structures_json
from draftmill.reporting.drift_report import sealed_report
from draftmill.reporting.provenance import provenance
from draftmill.reporting.since import Since
from draftmill.reporting.summary import Summary
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, result, stage
from tasks.seal import commit

RULES = ("structure", "on_truncated", "degenerate")
"""The recipe's fields that say how rows are judged."""


async def rejudge_changed(since: Since, recipe: Recipe, variants: Variants) -> Summary | None:
    """What a refresh does first when the rules are others than the newest manifest's; None when they are not."""
    if since.manifest is None or not since.rules:
        return None
    return await rejudge(since.manifest, recipe, variants)


async def rejudge(manifest: Manifest, recipe: Recipe, variants: Variants, *, anew: bool = False) -> Summary:
    """Seals the rows that changed sides; `rejudged` counts them. `anew`: whatever a receipt says.

    The summary's manifest is one all of whose rows were judged.
    """
    judging = judge_stored.with_options(refresh_cache=True) if anew else judge_stored
    summary = Summary(recipe.dataset, manifest.version)
    while True:
        listener().stage(f"judging {manifest.counts['good_rows'] + manifest.counts['quarantined_rows']} stored rows")
        # Rows of a variant that the recipe no longer has: by the structure they were sealed with.
        structures = {**manifest.structures, **structures_json(variants)}
        sealed = {"version": manifest.version, "sha256": manifest.sha256}
        judged = await result(judging, sealed, structures, recipe)
        newest, met = await _seal(manifest, judged, recipe, variants, summary)
        if met == manifest.version:
            return summary
        # Another run sealed meanwhile, perhaps by other rules. It ends: whoever wins a race judges no more.
        manifest = newest


def _key(parameters: dict[str, Any]) -> object:
    structures = parameters["structures"]
    return {
        "manifest": parameters["sealed"]["sha256"],
        "structures": {name: structure_rules(structure) for name, structure in structures.items()},
        "rules": recipe_rules(parameters["recipe"].model_dump(mode="json")),
    }


@stage(
    name="rejudge",
    run_name="judge the rows of manifest {sealed[version]} again",
    version=1,
    key=_key,
    gives={"good", "bad", "to_good", "to_bad"},
)
async def judge_stored(sealed: Receipt, structures: dict[str, Any], recipe: Recipe) -> Receipt:
    """`{good: [reference], bad: [reference], to_good, to_bad}`: the rows with another verdict, and those that move."""
    return await in_thread(_judge, sealed["version"], structures, recipe)


def _judge(version: int, structures: dict[str, Any], recipe: Recipe) -> Receipt:
    storage = workspace().storage
    manifest = read_manifest(storage, version)
    known = eras(structures_from_json(structures), earlier_structures(storage, manifest))
    rules = Rules(recipe.on_truncated, recipe.degenerate)

    def judge_table(table: pa.Table) -> list[Verdict | None]:
        return judged_table(known.named(table), known.structures, rules).verdicts

    rejudged = rejudge_rows(storage, manifest, judge_table)
    return {
        "good": [ref.model_dump() for ref in rejudged.good],
        "bad": [ref.model_dump() for ref in rejudged.bad],
        "to_good": rejudged.to_good,
        "to_bad": rejudged.to_bad,
    }


async def _seal(
    manifest: Manifest, judged: Receipt, recipe: Recipe, variants: Variants, summary: Summary
) -> tuple[Manifest, int]:
    """The newest manifest, and the version that the judged rows met; `summary` takes the numbers in."""
    storage = workspace().storage
    kept, held = await in_thread(row_counts, storage, manifest)
    rows = summary.rows
    rows["planned"], rows["kept"], rows["held"] = kept + held, kept, held
    rows["rejudged"] += judged["to_good"] + judged["to_bad"]
    summary.manifest, summary.attempts = manifest.version, manifest.counts.get("attempts", {})
    summary.rejudged_bad += judged["to_bad"]

    def counts(tally: Tally) -> dict[str, Any]:
        rows["kept"], rows["held"] = tally.good_rows, tally.held
        rows["planned"] = tally.good_rows + tally.held  # another run may have sealed more meanwhile
        summary.attempts = dict(tally.attempts)
        return summary.to_manifest()

    good, bad = ([ObjectRef.model_validate(ref) for ref in judged[side]] for side in ("good", "bad"))
    if not (good or bad):
        return manifest, manifest.version
    sealed = await commit(
        Change(
            good=good,
            bad=bad,
            dropped=await in_thread(moved_requests, storage, good, bad),
            judged=manifest.version,
            inherited=lambda parent: _as_sealed(parent, recipe, variants),
            structures=structures_json(variants),
            counts=counts,
        )
    )
    summary.manifest, summary.sealed = sealed.manifest.version, summary.sealed or sealed.sealed
    summary.drift = sealed_report(sealed) or summary.drift
    return sealed.manifest, sealed.met


def _as_sealed(parent: Manifest, recipe: Recipe, variants: Variants) -> dict[str, Any]:
    """The fields of a Change that are as the parent has them, but for the rules.

    Whatever else the recipe changes has had no effect on any row yet, and the next plan is to say so.
    """
    made = next(iter(variants.values())).provenance
    return {
        "rejected": parent.rejected,
        "recipe": _with_rules(parent.recipe, recipe),
        "identity": parent.identity,
        "provenance": provenance(
            {name: parent.provenance.get(name, made[name]) for name in made}, parent.provenance["servers"]
        ),
        "failed": parent.failed,
    }


def _with_rules(stored: dict[str, Any], recipe: Recipe) -> dict[str, Any]:
    rules = {name: getattr(recipe, name) for name in RULES}
    if rules["on_truncated"] == "continue" and stored["prompts"]["turns"] == "all":
        rules["on_truncated"] = "keep"  # judges alike, and those two do not go together
    return {**stored, **rules}
