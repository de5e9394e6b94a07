"""Render and tokenize: slices of prompts in, rows with their ids and keys out."""

from __future__ import annotations

import asyncio
from typing import Any

import transformers

from draftmill.dataset.rejected import rejections_table
from draftmill.errors import SourceError
from draftmill.generation.continuing import slice_of, total_of
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.render import render_prompts
from draftmill.workspace import workspace
from tasks.receipts import Receipt, result, stage

SHOWN_REJECTS = 3
"""Rejects quoted when nothing can be sent: enough to see what is wrong with all."""


async def tokenize_prompts(loaded: Receipt, recipe: Recipe, renders: str) -> list[Receipt]:
    """One receipt a slice: `{rows: reference, rejected: reference or None, special_text}`.

    `renders`: digest of everything that decides how a conversation becomes ids
    (tokenizer, template, its arguments, the date).
    """
    listener().stage(f"rendering {loaded['prompts']} prompts")
    slices = loaded["slices"]
    numbered = [{"number": n, "total": len(slices), "prompts": ref} for n, ref in enumerate(slices, 1)]
    rendered = [await result(tokenize_slice, part, recipe, renders) for part in numbered]
    if not any(part["rows"]["rows"] for part in rendered):
        raise await asyncio.to_thread(_nothing, rendered, recipe)
    if kept := sum(part["special_text"] for part in rendered):
        listener().stage(f"{kept} prompts hold text that becomes control ids; kept (prompts.special_text)")
    return rendered


def _nothing(rendered: list[Receipt], recipe: Recipe) -> SourceError:
    rejections = workspace().storage.read_table(rendered[0]["rejected"]["path"]).slice(0, SHOWN_REJECTS).to_pylist()
    return SourceError(
        "none of the prompts can be sent",
        value="; ".join(f"{row['prompt_id']}: {row['reason']}: {row['detail']}" for row in rejections),
        expected="at least one prompt that the template takes and the context holds",
        remedy=f"correct {', '.join(recipe.prompts.paths)}, model.context_length or the chat template",
    )


def _key(parameters: dict[str, Any]) -> object:
    recipe: Recipe = parameters["recipe"]
    return {
        "prompts": parameters["part"]["prompts"]["sha256"],
        "renders": parameters["renders"],
        "transformers": transformers.__version__,
        "model": recipe.model.model_dump(mode="json", exclude={"tokenizer", "chat_template", "date"}),
        "sampling": recipe.sampling.model_dump(mode="json"),
        "engine": recipe.engine.kind,
        "rules": [recipe.prompts.special_text, recipe.prompts.min_room, recipe.keep_messages],
        "budget": [slice_of(recipe), total_of(recipe)],
    }


@stage(
    name="tokenize",
    run_name="tokenize slice {part[number]} of {part[total]}",
    version=1,
    key=_key,
    gives={"rows", "rejected", "special_text"},
)
async def tokenize_slice(part: Receipt, recipe: Recipe, renders: str) -> Receipt:
    """The task: one slice."""
    return await asyncio.to_thread(_render, part["prompts"]["path"], recipe)


def _render(path: str, recipe: Recipe) -> Receipt:
    storage = workspace().storage
    rendered = render_prompts(storage.read_table(path), recipe)
    rejected = None
    if rendered.rejected:
        rejected = storage.put_table("prompts", rejections_table(rendered.rejected)).model_dump()
    return {
        "rows": storage.put_table("prompts", rendered.rows).model_dump(),
        "rejected": rejected,
        "special_text": rendered.special_text,
    }
