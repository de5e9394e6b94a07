"""Render and tokenize: slices of prompts in, rows with their ids and keys out.

Several slices are in work at once, so that all cores have something to render
(`rendering.processes`); each is a cached task of its own.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any

import transformers

from draftmill.dataset.rejected import rejections_table
from draftmill.errors import SourceError
from draftmill.generation.continuing import slice_of, total_of
from draftmill.progress import Rows, listener
from draftmill.recipe import Recipe
from draftmill.rendering.processes import PIECE_ROWS, Renderers
from draftmill.rendering.render import Rendered
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, result, stage

SHOWN_REJECTS = 3
"""Rejects quoted when nothing can be sent: enough to see what is wrong with all."""

_RENDERERS: ContextVar[Renderers] = ContextVar("draftmill_renderers")


async def tokenize_prompts(loaded: Receipt, recipe: Recipe, renders: str) -> list[Receipt]:
    """One receipt a slice: `{rows: reference, rejected: reference or None, special_text}`.

    `renders`: digest of everything that decides how a conversation becomes ids
    (tokenizer, template, its arguments, the date).
    """
    listener().stage(f"rendering {loaded['prompts']} prompts")
    slices = loaded["slices"]
    numbered = [{"number": n, "total": len(slices), "prompts": ref} for n, ref in enumerate(slices, 1)]
    rendered = await _all_slices(numbered, recipe, renders)
    if not any(part["rows"]["rows"] for part in rendered):
        raise await in_thread(_nothing, rendered, recipe)
    if kept := sum(part["special_text"] for part in rendered):
        listener().stage(f"{kept} prompts hold text that becomes control ids; kept (prompts.special_text)")
    return rendered


async def _all_slices(numbered: list[Receipt], recipe: Recipe, renders: str) -> list[Receipt]:
    """The slices' receipts in order, or the first error; then the others end too."""
    async with Renderers(recipe) as renderers:
        token = _RENDERERS.set(renderers)
        progress = _Progress(renderers, sum(part["prompts"]["rows"] for part in numbered))
        room = asyncio.Semaphore(_at_once(renderers.lanes, progress.total // max(1, len(numbered))))

        async def one(part: Receipt) -> Receipt:
            async with room:
                receipt = await result(tokenize_slice, part, recipe, renders)
                progress.done(part["prompts"]["rows"])
                return receipt

        try:
            async with asyncio.TaskGroup() as group:
                slices = [group.create_task(one(part)) for part in numbered]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            _RENDERERS.reset(token)
    return [each.result() for each in slices]


def _at_once(lanes: int, slice_rows: int) -> int:
    """Slices in work: two pieces for each renderer, one slice being read and one being written; it bounds memory."""
    return 2 + 2 * lanes * PIECE_ROWS // max(1, slice_rows)


class _Progress:
    """Tells the listener how far it is, by slices; one alone is over before anybody asks."""

    def __init__(self, renderers: Renderers, total: int) -> None:
        self.total = total
        self._renderers = renderers
        self._done = 0
        self._started_s = time.monotonic()

    def done(self, num_rows: int) -> None:
        self._done += num_rows
        if self._renderers.num_rows and num_rows < self.total:
            elapsed_s = time.monotonic() - self._started_s
            listener().rows(Rows(self._done, self.total, self._renderers.num_ids, elapsed_s))


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
        "turns": [recipe.prompts.turns, recipe.structure],
        "variants": [variant.model_dump(mode="json") for variant in recipe.variants or ()],
        "budget": [slice_of(recipe), total_of(recipe)],
    }


@stage(
    name="tokenize",
    run_name="tokenize slice {part[number]} of {part[total]}",
    version=3,
    key=_key,
    gives={"rows", "rejected", "special_text"},
)
async def tokenize_slice(part: Receipt, recipe: Recipe, renders: str) -> Receipt:
    """The task: one slice."""
    loaded = await in_thread(workspace().storage.read_table, part["prompts"]["path"])
    return await in_thread(_store, await _RENDERERS.get().render(loaded))


def _store(rendered: Rendered) -> Receipt:
    storage = workspace().storage
    rejected = None
    if rendered.rejected:
        rejected = storage.put_table("prompts", rejections_table(rendered.rejected)).model_dump()
    return {
        "rows": storage.put_table("prompts", rendered.rows).model_dump(),
        "rejected": rejected,
        "special_text": rendered.special_text,
    }
