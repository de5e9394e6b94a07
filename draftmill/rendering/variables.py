"""The variables a chat template reads, and those a recipe gives it: a name it never reads is a slip of the pen.

A template is silent about a variable it does not know: Qwen3 with `thinking: false`
reasons on, since its switch is `enable_thinking`. All of a tokenizer's named
templates count, and the parameters of a tokenizer that renders by code of its own.

Refuses only what is certain: where a template cannot be parsed, nothing is said.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from draftmill.errors import RecipeError
from draftmill.rendering.switches import read_variables, set_variables, speaks
from draftmill.rendering.template import reserved_names

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOLD = frozenset({"documents", "tools", "raise_exception", "strftime_now"})
"""What the renderer gives every template, beside its own parameters and the special tokens."""


def own_variables(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """What the templates read and are not told by the renderer, sorted; [] when one of them cannot be parsed."""
    read = _read(tokenizer) or frozenset()
    return sorted(read - reserved_names() - tokenizer.special_tokens_map.keys() - TOLD)


def check_template_kwargs(tokenizer: PreTrainedTokenizerBase, template_kwargs: dict[str, Any]) -> None:
    """Raises RecipeError for a name that nothing reads."""
    read = _read(tokenizer)
    # What is reserved is refused by the renderer, which says why.
    unread = sorted(template_kwargs.keys() - reserved_names() - _parameters(tokenizer) - (read or frozenset()))
    if read is None or not unread:
        return
    own = sorted(own_variables(tokenizer), key=lambda name: not speaks(name))
    # Jinja calls a name read from outside that is set in a branch or a loop alone: rarely a switch.
    given = [name for name in own if not any(name in set_variables(each) for each in _templates(tokenizer))] or own
    raise RecipeError(
        "template_kwargs holds a name that the chat template never reads",
        value=", ".join(unread),
        expected=f"variables the template reads: {', '.join(given) or 'it has none of its own'}",
        remedy="correct or remove the name in template_kwargs (the model's, or the variant's)",
    )


def _read(tokenizer: PreTrainedTokenizerBase) -> frozenset[str] | None:
    found = [read_variables(template) for template in _templates(tokenizer)]
    return None if None in found else frozenset().union(*(each for each in found if each is not None))


def _templates(tokenizer: PreTrainedTokenizerBase) -> Iterable[str]:
    template = tokenizer.chat_template
    return template.values() if isinstance(template, dict) else [template or ""]


def _parameters(tokenizer: PreTrainedTokenizerBase) -> frozenset[str]:
    """What the tokenizer's own code takes: Kimi's has a parameter for thinking."""
    return frozenset(inspect.signature(type(tokenizer).apply_chat_template).parameters)
