"""The messages that probes are made of, in the forms templates differ in.

Small contents, so that a difference between two renderings is one id: `CONTENTS`
are digits, which no tokenizer merges into one. An assistant's reasoning is given
in every field that templates read, or as a part of its content; tool calls with
arguments as a mapping or as JSON text, with empty content or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Messages = list[dict[str, Any]]

CONTENTS = ("7", "4")
"""Two contents without a common id, which no tokenizer merges into one."""

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Fields of an assistant's message in which templates look for its reasoning."""

CALL_ID = "weather00"
"""Nine letters and digits, as Mistral's templates demand."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its name."}},
                "required": ["city"],
            },
        },
    }
]


@dataclass(frozen=True, slots=True)
class CallForm:
    """A way of writing a message with tool calls; templates differ in which they take."""

    arguments_as_text: bool
    content: str | None
    with_tools: bool


CALL_FORMS = (
    CallForm(arguments_as_text=False, content="", with_tools=True),
    CallForm(arguments_as_text=True, content="", with_tools=True),
    CallForm(arguments_as_text=False, content=None, with_tools=True),
    CallForm(arguments_as_text=True, content=None, with_tools=True),
    CallForm(arguments_as_text=False, content="", with_tools=False),
)
"""In the order in which they are tried."""


def user(content: str) -> Messages:
    """One user message."""
    return [{"role": "user", "content": content}]


def in_parts(messages: Messages) -> Messages:
    """The same messages, each content a list of one part."""
    return [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]


def system(content: str) -> Messages:
    """One system message."""
    return [{"role": "system", "content": content}]


def assistant(content: str, *, reasoning: str | None = None) -> Messages:
    """One answer, its reasoning in every field that templates read."""
    return [{"role": "assistant", "content": content, **_reasoning_fields(reasoning)}]


def assistant_in_parts(content: str, *, reasoning: str) -> Messages:
    """One answer, its reasoning as a part of the content, as Mistral's templates take it."""
    parts = [{"type": "thinking", "thinking": reasoning}, {"type": "text", "text": content}]
    return [{"role": "assistant", "content": parts}]


def assistant_calling(
    city: str, *, num: int = 1, form: CallForm = CALL_FORMS[0], reasoning: str | None = None
) -> Messages:
    """One answer that only calls a tool, `num` times."""
    arguments: Any = f'{{"city": "{city}"}}' if form.arguments_as_text else {"city": city}
    call = {"id": CALL_ID, "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [{"role": "assistant", "content": form.content, "tool_calls": [call] * num, **_reasoning_fields(reasoning)}]


def tool_result() -> Messages:
    """What the tool answers."""
    return [{"role": "tool", "content": "3", "tool_call_id": CALL_ID, "name": "weather"}]


def _reasoning_fields(reasoning: str | None) -> dict[str, str]:
    return dict.fromkeys(REASONING_FIELDS, reasoning) if reasoning else {}
