"""Render and tokenize: slices of prompts in, rows with their ids and keys out.

Several slices are in work at once, so that all cores have something to render
(`rendering.processes`). Each is a cached task of its own, or of very many a few.
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

TASKS_A_SIZE = 64
"""Tasks that take one slice each; as many take two, then four ...: a run stays under about 1,000 task runs, also where
long prompts make many slices, and a source that grows keeps its earlier tasks, and with them their receipts."""

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
    rendered = await _all_slices(_parts(slices), recipe, renders)
    if not any(part["rows"]["rows"] for part in rendered):
        raise await in_thread(_nothing, rendered, recipe)
    if kept := sum(part["special_text"] for part in rendered):
        listener().stage(f"{kept} prompts hold text that becomes control ids; kept (prompts.special_text)")
    return rendered


async def _all_slices(numbered: list[Receipt], recipe: Recipe, renders: str) -> list[Receipt]:
    """The slices' receipts in order, or the first error; then the others end too. `numbered`: what each task takes."""
    async with Renderers(recipe) as renderers:
        token = _RENDERERS.set(renderers)
        progress = _Progress(renderers, sum(ref["rows"] for part in numbered for ref in part["prompts"]))
        num_slices = sum(len(part["prompts"]) for part in numbered)
        room = asyncio.Semaphore(_at_once(renderers.lanes, progress.total // max(1, num_slices)))

        async def one(part: Receipt) -> Receipt:
            async with room:
                receipt = await result(tokenize_slices, part, recipe, renders)
                progress.done(sum(ref["rows"] for ref in part["prompts"]))
                return receipt

        try:
            async with asyncio.TaskGroup() as group:
                slices = [group.create_task(one(part)) for part in numbered]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            _RENDERERS.reset(token)
    return [rendered for each in slices for rendered in each.result()["slices"]]


def _parts(slices: list[dict[str, Any]]) -> list[Receipt]:
    """`{number, total, prompts: [reference]}`: what each task takes, of the slices in order."""
    cut: list[list[dict[str, Any]]] = []
    start = 0
    while start < len(slices):
        size = 1 << len(cut) // TASKS_A_SIZE
        cut.append(slices[start : start + size])
        start += size
    return [{"number": number, "total": len(cut), "prompts": taken} for number, taken in enumerate(cut, 1)]


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
        "prompts": [ref["sha256"] for ref in parameters["part"]["prompts"]],
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
    run_name="tokenize slice {part[number]}/{part[total]}",
    version=4,
    key=_key,
    gives={"slices"},
)
async def tokenize_slices(part: Receipt, recipe: Recipe, renders: str) -> Receipt:
    """The task: `{slices: [one receipt a slice]}`, one after the other."""
    return {"slices": [await _tokenized(ref) for ref in part["prompts"]]}


async def _tokenized(ref: Receipt) -> Receipt:
    loaded = await in_thread(workspace().storage.read_table, ref["path"])
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
