"""Loaded source rows become rows to send: prompt ids, keys, and each row's own budget.

In: a LOADED table. Out: a ROW table in source order (a prompt's samples side by
side) and the rejections, so that every loaded row is in one of the two. A row's
budget is the recipe's (of a row that is asked on, that of all its requests), or
what the context leaves: a server clips silently to that, so it is said here, where it is stored with the row.

Refuses nothing but a recipe that is wrong for all rows (`template.render_ids`);
duplicates are the plan's business, which sees all slices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from draftmill import identity, plugins
from draftmill.arrays import Ids
from draftmill.dataset.schema import ROW, rows_table
from draftmill.generation.continuing import slice_of, total_of
from draftmill.recipe import Recipe
from draftmill.records import Reason, Rejection, Row
from draftmill.rendering.special_text import special_text
from draftmill.rendering.template import Refused, render_date, render_ids
from draftmill.rendering.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

VARIANT = "default"

BATCH_ROWS = 1024
"""Source rows rendered before their ids go into Arrow: bounds what lives as Python objects."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """`rows`: a ROW table. `special_text`: prompts kept although text in them became control ids."""

    rows: pa.Table
    rejected: list[Rejection]
    special_text: int


def render_prompts(loaded: pa.Table, recipe: Recipe) -> Rendered:
    """A LOADED table as rows with attempt 0, one per sample, and rejections; both in source order.

    Raises RecipeError when tokenizer or template cannot serve any row.
    """
    renderer = _Renderer(load_tokenizer(recipe.model), recipe)
    tables = [ROW.empty_table()]
    rejected: list[Rejection] = []
    for batch in loaded.to_batches(max_chunksize=BATCH_ROWS):
        rows: list[Row] = []
        for item in batch.to_pylist():
            outcome = renderer.prompt(item)
            if isinstance(outcome, Rejection):
                rejected.append(outcome)
            else:
                rows += outcome
        tables.append(rows_table(rows))
    return Rendered(pa.concat_tables(tables), rejected, renderer.special_text)


class _Renderer:
    """Renders one slice of a run; counts what is only counted."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, recipe: Recipe) -> None:
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._date = render_date(recipe.model)
        self._engine = plugins.load("engines", recipe.engine.kind)
        self._shared = identity.row_identity(recipe.model, recipe.sampling)
        self.special_text = 0

    def prompt(self, item: dict[str, Any]) -> list[Row] | Rejection:
        """One LOADED row as its samples' rows, or why it cannot be sent."""
        source = json.loads(item["messages"])
        messages, tools = source["messages"], source.get("tools")
        ids = self._ids(messages, tools)
        if isinstance(ids, Refused):
            return _rejection(item, Reason.PROMPT_INVALID, ids.words)
        if not len(ids):
            return _rejection(item, Reason.PROMPT_INVALID, "the template renders no ids")
        if too_long := self._too_long(len(ids)):
            return _rejection(item, Reason.PROMPT_TOO_LONG, too_long)
        if found := special_text(self._tokenizer, (messages, tools), ids, self._ids):
            if self._recipe.prompts.special_text == "reject":
                return _rejection(item, Reason.SPECIAL_TEXT, f"text becomes control ids: {', '.join(found)}")
            self.special_text += 1
        return list(self._rows(item, identity.prompt_key(messages, tools, VARIANT), ids))

    def _ids(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Ids | Refused:
        return render_ids(
            self._tokenizer, messages, tools, template_kwargs=self._recipe.model.template_kwargs, date=self._date
        )

    def _room(self, prompt_len: int) -> int:
        """Tokens the context leaves for the answer; of a continued row, such that its last request is no longer than
        the longest prompt the server takes."""
        reserve = int(self._engine.CONTEXT_RESERVE)
        if slice_of(self._recipe) is not None:
            reserve = max(reserve, int(self._engine.PROMPT_RESERVE))
        return self._recipe.model.context_length - prompt_len - reserve

    def _too_long(self, prompt_len: int) -> str | None:
        context, room = self._recipe.model.context_length, self._room(prompt_len)
        wanted = min(self._recipe.prompts.min_room, self._recipe.sampling.max_new_tokens)
        if room >= wanted and prompt_len <= context - self._engine.PROMPT_RESERVE:
            return None
        return f"{prompt_len} tokens in a context of {context} leave {room} for the answer; wanted {wanted}"

    def _rows(self, item: dict[str, Any], prompt_key: str, ids: Ids) -> Iterator[Row]:
        budget = min(total_of(self._recipe), self._room(len(ids)))
        for sample in range(self._recipe.sampling.samples):
            yield Row(
                row_key=identity.row_key(ids, self._shared, sample),
                attempt=0,
                prompt_key=prompt_key,
                prompt_id=item["prompt_id"],
                variant=VARIANT,
                sample=sample,
                prompt_ids=ids,
                max_new_tokens=budget,
                messages=item["messages"] if self._recipe.keep_messages else None,
                source=item["source"],
            )


def _rejection(item: dict[str, Any], reason: Reason, detail: str) -> Rejection:
    return Rejection(
        reason=reason, detail=detail, prompt_id=item["prompt_id"], source=item["source"], line=item["line"]
    )
