"""Validate: a chunk's completions in, a verdict for each out. No request, no text, ids only."""

from __future__ import annotations

import asyncio
from typing import Any

from draftmill.dataset.schema import table_completions
from draftmill.dataset.verdicts import FOLDER, verdicts_table
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Structure
from draftmill.recipe import Recipe
from draftmill.workspace import workspace
from tasks.receipts import Receipt, stage

GIVES = {"verdicts", "ok", "quarantined", "reasons", "single_echo"}


def _key(parameters: dict[str, Any]) -> object:
    recipe: Recipe = parameters["recipe"]
    return {
        "completions": parameters["generated"]["completions"]["sha256"],
        "structure": parameters["structure"],
        "rules": [recipe.on_truncated, recipe.degenerate],
    }


@stage(name="validate", run_name="validate chunk {chunk[number]} of {chunk[total]}", version=1, key=_key, gives=GIVES)
async def validate(chunk: Receipt, generated: Receipt, structure: dict[str, Any], recipe: Recipe) -> Receipt:
    """`{verdicts: reference, ok, quarantined, reasons, single_echo}`."""
    return await asyncio.to_thread(_judge, generated["completions"]["path"], Structure.from_json(structure), recipe)


def _judge(path: str, structure: Structure, recipe: Recipe) -> Receipt:
    storage = workspace().storage
    completions = table_completions(storage.read_table(path))
    verdicts = judge(
        Answers.of_completions(completions), structure, on_truncated=recipe.on_truncated, degenerate=recipe.degenerate
    )
    reasons = {str(reason): number for reason, number in verdicts.counts().items()}
    ok = int(verdicts.ok_B.sum())
    return {
        "verdicts": storage.put_table(FOLDER, verdicts_table(completions, [*verdicts])).model_dump(),
        "ok": ok,
        "quarantined": len(completions) - ok,
        "reasons": dict(sorted(reasons.items())),
        "single_echo": int(verdicts.single_echo_B.sum()),
    }
