"""The library `renderers`, where it knows the model: it builds the next prompt on the ids so far, and reads tool calls.

A renderer is found by the model's name and taken only on evidence: on the
probe's conversations its ids must be those of our template. What stands between
two turns the template says; the bridge is a second witness (`next_turn`), which
may refuse, and is held to its word that no id so far changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from draftmill.arrays import Ids, ids_array
from draftmill.rendering.conversation import Message
from draftmill.rendering.history import PROBED_TURNS, History, probe
from draftmill.rendering.template import Refused

if TYPE_CHECKING:
    from renderers import Renderer
    from transformers import PreTrainedTokenizerBase

FETCHED = frozenset({"gpt-oss"})
"""Renderers that load a vocabulary from the network: a run fetches nothing. That template rewrites its history."""

NOT_FOR_THIS = (AssertionError, ValueError, TypeError, LookupError)
"""What renderers raises for a tokenizer, a template variable or a conversation that it does not take."""


def renderer_of(
    tokenizer: PreTrainedTokenizerBase,
    model: str,
    *,
    template_kwargs: dict[str, Any],
    render: Callable[[list[Message]], Ids | Refused],
    history: History,
) -> Renderer | None:
    """The model's renderer, when it gives the probe's conversations the ids that our template gives them (`render`)."""
    from renderers import config_from_name, create_renderer, merge_chat_template_kwargs
    from renderers.base import MODEL_RENDERER_MAP

    name = MODEL_RENDERER_MAP.get(model)
    if name is None or name in FETCHED:
        return None
    try:
        config = merge_chat_template_kwargs(cast(Any, config_from_name(name)), template_kwargs)
        renderer = create_renderer(tokenizer, config)
        for turns in range(PROBED_TURNS):
            messages = probe(history.stand_in, turns)
            ids = render(messages)
            if isinstance(ids, Refused):
                return None
            if list(renderer.render_ids(cast(Any, messages), add_generation_prompt=True)) != ids.tolist():
                return None
    except NOT_FOR_THIS:
        return None
    return cast("Renderer", renderer)


def bridged(
    renderer: Renderer,
    prompt_ids: Ids,
    output_ids: Ids,
    messages: list[Message],
    tools: list[dict[str, Any]] | None,
) -> Ids | None:
    """The ids so far and behind them what the next turn needs; None where the renderer would change one of them."""
    try:
        made = renderer.bridge_to_next_turn(
            prompt_ids.tolist(), output_ids.tolist(), cast(Any, messages), tools=cast(Any, tools)
        )
    except NOT_FOR_THIS:
        return None
    so_far = [*prompt_ids.tolist(), *output_ids.tolist()]
    if made is None or made.token_ids[: len(so_far)] != so_far:
        return None
    return ids_array("prompt_ids", made.token_ids)


def tool_calls(renderer: Renderer, prompt_ids: Ids, output_ids: Ids) -> tuple[str, list[dict[str, Any]]] | None:
    """An answer's content and its tool calls as a message has them; None where it has none, or one that is broken."""
    from renderers import ToolCallParseStatus

    try:
        parsed = renderer.parse_response(output_ids.tolist(), prompt_ids=prompt_ids.tolist())
    except NOT_FOR_THIS:
        return None
    if not parsed.tool_calls or any(call.status is not ToolCallParseStatus.OK for call in parsed.tool_calls):
        return None
    calls = [
        {
            "type": "function",
            **({"id": call.id} if call.id else {}),
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in parsed.tool_calls
    ]
    return parsed.content, calls
