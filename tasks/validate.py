"""Validate: a chunk's completions in, a verdict for each out. No request, no text, ids only."""

from __future__ import annotations

from typing import Any

from draftmill.dataset.schema import table_completions
from draftmill.dataset.verdicts import FOLDER, verdicts_table
from draftmill.judging.judged import Rules, judged_completions
from draftmill.judging.structure import Structure, structures_from_json
from draftmill.recipe import Recipe
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, stage

GIVES = {"verdicts", "ok", "quarantined", "reasons", "single_echo"}


def _key(parameters: dict[str, Any]) -> object:
    recipe: Recipe = parameters["recipe"]
    return {
        "completions": parameters["generated"]["completions"]["sha256"],
        "structures": parameters["structures"],
        "rules": [recipe.on_truncated, recipe.degenerate],
    }


@stage(name="validate", run_name="validate chunk {chunk[number]} of {chunk[total]}", version=1, key=_key, gives=GIVES)
async def validate(chunk: Receipt, generated: Receipt, structures: dict[str, Any], recipe: Recipe) -> Receipt:
    """`{verdicts: reference, ok, quarantined, reasons, single_echo}`. `structures`: by variant, as JSON."""
    known = structures_from_json(structures)
    return await in_thread(_judge, generated["completions"]["path"], known, recipe)


def _judge(path: str, structures: dict[str, Structure], recipe: Recipe) -> Receipt:
    storage = workspace().storage
    completions = table_completions(storage.read_table(path))
    judged = judged_completions(completions, structures, Rules(recipe.on_truncated, recipe.degenerate))
    quarantined = sum(judged.reasons.values())
    return {
        "verdicts": storage.put_table(FOLDER, verdicts_table(completions, judged.known)).model_dump(),
        "ok": len(completions) - quarantined,
        "quarantined": quarantined,
        "reasons": judged.reasons,
        "single_echo": judged.single_echo,
    }
