"""The rows of a conversation whose turns are all asked (`prompts.turns: all`), before anything is generated.

Where the template extends its history, a conversation is one row a sample, which
goes by its last turn; where it rewrites it, each turn is a row, in the order in
which they are asked. Only a first turn has prompt ids yet: those of later ones
hold what will be generated (`next_turn`).

Every later prompt is rendered with stand-ins for the answers: a conversation which
the template refuses is rejected before a turn of it is asked, and whatever else the
template writes counts in the turn's key.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from draftmill import identity
from draftmill.arrays import Ids
from draftmill.generation.continuing import total_of
from draftmill.judging.derive import derive_structure
from draftmill.recipe import Recipe
from draftmill.records import HistoryMode, Row
from draftmill.rendering.context import room
from draftmill.rendering.conversation import Conversation, Message
from draftmill.rendering.history import History, history_mode
from draftmill.rendering.tokenizer import load_tokenizer

RECIPES_KEPT = 64
"""Recipes whose history mode is known in this process: as many as a recipe may well have variants."""


def history_of(recipe: Recipe) -> History:
    """What the recipe's template makes of earlier turns; decided once a process. Raises RecipeError."""
    return _history(recipe.model_dump_json())


@functools.lru_cache(maxsize=RECIPES_KEPT)
def _history(recipe_json: str) -> History:
    recipe = Recipe.model_validate_json(recipe_json)
    tokenizer = load_tokenizer(recipe.model)
    structure = derive_structure(tokenizer, recipe)
    return history_mode(tokenizer, structure, template_kwargs=recipe.model.template_kwargs)


def shown(conversation: Conversation, history: History) -> list[list[Message]]:
    """What each later turn is asked behind, with stand-ins for what is generated before it."""
    return [conversation.asked(turn, [history.stand_in] * turn) for turn in range(1, len(conversation))]


def turn_rows(
    first: Row,
    conversation: Conversation,
    history: History,
    recipe: Recipe,
    *,
    shown_ids: Sequence[Ids],
    canonical: str,
) -> Iterator[Row]:
    """The rows of one sample. `first`: the row of the first turn as any prompt has it; `recipe`: the variant's own;
    `shown_ids`: those of `shown`; `canonical`: the source's messages and tools as JSON."""
    keys = _keys(first, conversation, history, recipe, shown_ids)
    last = len(keys) - 1
    later = replace(first, conversation=canonical, max_new_tokens=total_of(recipe), history=history.mode)
    if history.mode is HistoryMode.EXTENDS:
        # The context bounds each turn when it is asked: its `room`.
        yield _turn(replace(later, room=room(recipe, len(first.prompt_ids))), conversation, keys, last)
        return
    yield replace(first, history=history.mode)
    none_yet = replace(later, prompt_ids=first.prompt_ids[:0])
    yield from (_turn(none_yet, conversation, keys, turn) for turn in range(1, last + 1))


def _keys(
    first: Row, conversation: Conversation, history: History, recipe: Recipe, shown_ids: Sequence[Ids]
) -> list[str]:
    shared = identity.row_identity(recipe.model, recipe.sampling)
    later = (
        identity.turn_key(
            first.prompt_ids,
            conversation.later(turn),
            shared,
            history=history.mode,
            shown_ids_S=ids,
            sample=first.sample,
        )
        for turn, ids in enumerate(shown_ids, 1)
    )
    return [first.row_key, *later]


def _turn(row: Row, conversation: Conversation, keys: list[str], turn: int) -> Row:
    """The row as the one of a turn."""
    prompt_key = conversation.prompt_key(turn, row.variant)
    return replace(row, row_key=keys[turn], prompt_key=prompt_key, earlier=tuple(keys[:turn]))
