"""Validate: a chunk's completions in, a verdict for each out. No request, no text, ids only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftmill.dataset.schema import table_completions
from draftmill.dataset.verdicts import FOLDER, verdicts_table
from draftmill.judging.judged import Rules, judged_completions
from draftmill.judging.structure import Structure, structures_from_json
from draftmill.recipe import Recipe
from draftmill.records import Completion, Verdict
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, stage

ID_KEPT = 200
"""Characters of an example's prompt id: some sources have whole prompts there, and a receipt is small."""

GIVES = {"verdicts", "ok", "quarantined", "reasons", "examples", "single_echo"}


def _key(parameters: dict[str, Any]) -> object:
    recipe: Recipe = parameters["recipe"]
    return {
        "completions": parameters["generated"]["completions"]["sha256"],
        "structures": parameters["structures"],
        "rules": [recipe.on_truncated, recipe.degenerate],
    }


@stage(name="validate", run_name="validate chunk {chunk[number]}/{chunk[total]}", version=2, key=_key, gives=GIVES)
async def validate(chunk: Receipt, generated: Receipt, structures: dict[str, Any], recipe: Recipe) -> Receipt:
    """`{verdicts: reference, ok, quarantined, reasons, examples, single_echo}`. `structures`: by variant, as JSON;
    `examples`: by reason the first row, `{row_key, prompt_id, detail}`."""
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
        "examples": _examples(completions, judged.known),
        "single_echo": judged.single_echo,
    }


def _examples(completions: Sequence[Completion], verdicts: Sequence[Verdict]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for completion, verdict in zip(completions, verdicts, strict=True):
        if verdict.reason is not None and str(verdict.reason) not in found:
            row = completion.row
            found[str(verdict.reason)] = {
                "row_key": row.row_key,
                "prompt_id": row.prompt_id[:ID_KEPT],
                "detail": verdict.detail,
            }
    return found
