"""What the context leaves for an answer, and whether that is enough to ask."""

from __future__ import annotations

import functools
from types import ModuleType

from draftmill import plugins
from draftmill.generation.continuing import slice_of
from draftmill.recipe import Recipe


def room(recipe: Recipe, prompt_len: int) -> int:
    """Tokens the context leaves for the answer; of a row that is asked on, such that its last request is no longer
    than the longest prompt the server takes."""
    engine = _engine(recipe.engine.kind)
    reserve = int(engine.CONTEXT_RESERVE)
    if slice_of(recipe) is not None:
        reserve = max(reserve, int(engine.PROMPT_RESERVE))
    return recipe.model.context_length - prompt_len - reserve


def too_long(recipe: Recipe, prompt_len: int) -> str | None:
    """Why a prompt of so many ids cannot be sent; None when it can."""
    context, left = recipe.model.context_length, room(recipe, prompt_len)
    wanted = min(recipe.prompts.min_room, recipe.sampling.max_new_tokens)
    if left >= wanted and prompt_len <= context - int(_engine(recipe.engine.kind).PROMPT_RESERVE):
        return None
    return f"{prompt_len} tokens in a context of {context} leave {left} for the answer; wanted {wanted}"


@functools.cache
def _engine(kind: str) -> ModuleType:
    return plugins.load("engines", kind)
