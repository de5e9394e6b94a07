"""Loaded source rows become rows to send: prompt ids, keys, and each row's own budget.

In: a LOADED table. Out: a ROW table in source order (a prompt's samples side by
side, a sample's turns too), each prompt asked as its variant asks, and the
rejections, so that every loaded row is in one of the two. A row's budget is the
recipe's (of a row that is asked on, that of all its requests), or what the context
leaves: a server clips silently to that, so it is said here, where it is stored with
the row. What `prompts.turns: all` makes of a prompt is `turn_rows`.

Refuses nothing but a recipe that is wrong for all rows (`template.render_ids`);
duplicates are the plan's business, which sees all slices.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from draftmill import identity
from draftmill.arrays import Ids
from draftmill.dataset.schema import ROW, rows_table
from draftmill.generation.continuing import total_of
from draftmill.recipe import Recipe
from draftmill.records import Reason, Rejection, Row
from draftmill.rendering.call_form import NOT_PRINTED, CallForm, call_form, has_calls, in_form
from draftmill.rendering.context import room, too_long
from draftmill.rendering.conversation import Conversation
from draftmill.rendering.history import History
from draftmill.rendering.special_text import special_text
from draftmill.rendering.template import Refused, render_date, render_ids
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.rendering.turn_rows import history_of, shown, turn_rows
from draftmill.variants import by_variant, variant_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
    tokenizer = load_tokenizer(recipe.model)
    renderers = {name: _Renderer(tokenizer, alone, name) for name, alone in by_variant(recipe).items()}
    tables = [ROW.empty_table()]
    rejected: list[Rejection] = []
    for batch in loaded.to_batches(max_chunksize=BATCH_ROWS):
        rows: list[Row] = []
        for item in batch.to_pylist():
            source = json.loads(item["messages"])
            conversation = _conversation(recipe, source["messages"], source.get("tools"))
            # By the first turn's prompt: neither a recorded answer nor a turn that is added changes the variant.
            variant = variant_of(recipe, conversation.asked(0, []), conversation.tools)
            outcome = renderers[variant].prompt(item, conversation)
            if isinstance(outcome, Rejection):
                rejected.append(outcome)
            else:
                rows += outcome
        tables.append(rows_table(rows))
    return Rendered(pa.concat_tables(tables), rejected, sum(each.special_text for each in renderers.values()))


class _Renderer:
    """Renders the prompts of one variant; counts what is only counted. `recipe`: the variant's own."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, recipe: Recipe, variant: str) -> None:
        self._tokenizer = tokenizer
        self._recipe = recipe
        self._variant = variant
        self._date = render_date(recipe.model)
        self._shared = identity.row_identity(recipe.model, recipe.sampling)
        self.special_text = 0

    def prompt(self, item: dict[str, Any], conversation: Conversation) -> list[Row] | Rejection:
        """One LOADED row as its samples' rows, or why it cannot be sent."""
        tools = conversation.tools
        # What users say later becomes ids later; it is looked at now, with stand-ins for what is generated.
        later = shown(conversation, self._history) if len(conversation) > 1 else []
        prompts = [conversation.asked(0, []), *later]
        rendered: list[Ids] = []
        for messages in prompts:
            ids = self._ids(messages, tools)
            if isinstance(ids, Refused):
                return self._rejection(item, conversation, Reason.PROMPT_INVALID, ids.words)
            rendered.append(ids)
        if not len(rendered[0]):
            return self._rejection(item, conversation, Reason.PROMPT_INVALID, "the template renders no ids")
        if words := too_long(self._recipe, len(rendered[0])):
            return self._rejection(item, conversation, Reason.PROMPT_TOO_LONG, words)
        if found := special_text(self._tokenizer, (prompts[-1], tools), rendered[-1], self._ids):
            if self._recipe.prompts.special_text == "reject":
                return self._rejection(
                    item, conversation, Reason.SPECIAL_TEXT, f"text becomes control ids: {', '.join(found)}"
                )
            self.special_text += 1
        rows = self._rows(item, identity.prompt_key(prompts[0], tools, self._variant), rendered[0])
        if not later:
            return list(rows)
        turns = functools.partial(
            turn_rows,
            conversation=conversation,
            history=self._history,
            recipe=self._recipe,
            shown_ids=rendered[1:],
            canonical=item["messages"],
        )
        return [turn for row in rows for turn in turns(row)]

    @functools.cached_property
    def _history(self) -> History:
        return history_of(self._recipe)

    @functools.cached_property
    def _call_form(self) -> CallForm:
        return call_form(self._as_given)

    def _ids(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Ids | Refused:
        if not has_calls(messages):
            return self._as_given(messages, tools)
        if self._call_form is CallForm.NOT_PRINTED:
            return NOT_PRINTED
        return self._as_given(in_form(messages, self._call_form), tools)

    def _as_given(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Ids | Refused:
        return render_ids(
            self._tokenizer, messages, tools, template_kwargs=self._recipe.model.template_kwargs, date=self._date
        )

    def _rows(self, item: dict[str, Any], prompt_key: str, ids: Ids) -> Iterator[Row]:
        budget = min(total_of(self._recipe), room(self._recipe, len(ids)))
        for sample in range(self._recipe.sampling.samples):
            yield Row(
                row_key=identity.row_key(ids, self._shared, sample),
                attempt=0,
                prompt_key=prompt_key,
                prompt_id=item["prompt_id"],
                variant=self._variant,
                sample=sample,
                prompt_ids=ids,
                max_new_tokens=budget,
                messages=item["messages"] if self._recipe.keep_messages else None,
                source=item["source"],
                line=item["line"],
            )

    def _rejection(self, item: dict[str, Any], conversation: Conversation, reason: Reason, detail: str) -> Rejection:
        place = {name: item[name] for name in ("prompt_id", "source", "line")}
        keys = (conversation.prompt_key(turn, self._variant) for turn in range(len(conversation)))
        return Rejection(reason=reason, detail=detail, **place, prompt_keys=tuple(keys))


def _conversation(recipe: Recipe, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Conversation:
    """The turns that are asked: all of them, or one behind all messages."""
    if recipe.prompts.turns == "all":
        return Conversation.of(messages, tools)
    return Conversation(messages, tools, (len(messages),))
