"""In which form a template takes the tool calls of earlier turns, found by trying.

Canonical prompts hold arguments as objects, which most templates print. Some join
them to other text and want JSON text: given objects they refuse every such row,
or print Python's own notation. Others (DeepSeek-R1's) leave calls out without a
word: what is asked behind such a row is not what the source says, so it is
refused here. All is told by ids, once for a template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np

from draftmill.arrays import Ids
from draftmill.rendering.probe_messages import (
    CONTENTS,
    TOOLS,
    Messages,
    assistant,
    assistant_calling,
    tool_result,
    user,
)
from draftmill.rendering.template import Refused

Render = Callable[[Messages, list[dict[str, Any]] | None], Ids | Refused]
"""Messages and tools as the prompt in front of the next answer."""

NOT_PRINTED = Refused("the template does not print the tool calls of earlier turns")


class CallForm(StrEnum):
    """What the arguments of a call are, for a template."""

    OBJECT = "object"
    TEXT = "text"
    NOT_PRINTED = "not_printed"  # in neither form


def has_calls(messages: Iterable[dict[str, Any]]) -> bool:
    """Whether a conversation has calls, so that the form matters."""
    return any(message.get("tool_calls") for message in messages)


def in_form(messages: Sequence[dict[str, Any]], form: CallForm) -> Messages:
    """Canonical messages in a template's form."""
    if form is not CallForm.TEXT:
        return list(messages)
    return [{**m, "tool_calls": list(map(_as_text, m["tool_calls"]))} if m.get("tool_calls") else m for m in messages]


def call_form(render: Render) -> CallForm:
    """The form that a template prints; objects also where it takes no conversation with calls, and says why."""
    refused = True
    for then in (tool_result(), [], tool_result() + assistant("6") + user("8")):
        for tools in (TOOLS, None):
            objects = [render(_called({"city": city}) + then, tools) for city in CONTENTS]
            if _differ(*objects) and not _same(objects[0], render(_called(repr({"city": CONTENTS[0]})) + then, tools)):
                return CallForm.OBJECT
            texts = [render(_called(json.dumps({"city": city})) + then, tools) for city in CONTENTS]
            if _differ(*texts):
                return CallForm.TEXT
            refused &= all(isinstance(each, Refused) for each in (*objects, *texts))
    return CallForm.OBJECT if refused else CallForm.NOT_PRINTED


def _called(arguments: dict[str, str] | str) -> Messages:
    turn = assistant_calling(CONTENTS[0])[0]
    function = {**turn["tool_calls"][0]["function"], "arguments": arguments}
    return [*user("5"), {**turn, "tool_calls": [{**turn["tool_calls"][0], "function": function}]}]


def _differ(one: Ids | Refused, other: Ids | Refused) -> bool:
    return not isinstance(one, Refused) and not isinstance(other, Refused) and not np.array_equal(one, other)


def _same(one: Ids | Refused, other: Ids | Refused) -> bool:
    return not isinstance(one, Refused) and not isinstance(other, Refused) and np.array_equal(one, other)


def _as_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    written = {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}
    return {**call, "function": written} if "function" in call else written
