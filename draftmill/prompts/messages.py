"""One message of a source row as the one form that templates are given.

In: a turn as files have it (`role`/`content`, ShareGPT's `from`/`value`, or a
mixture), with nulls that Arrow filled in, content as text parts, any letter case
of the role.
Out: a dict with `role`, `content` (text) and, where they are set, the keys of
KEPT. Every other key is dropped: it is metadata, and metadata must not change a
prompt's key. Refused with words: unknown roles, media, wrong types.
"""

from __future__ import annotations

from typing import Any

from draftmill.prompts.source_row import RowFault, kind
from draftmill.prompts.tools import canonical_calls

ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "tool": "tool",
}
"""Names found in files, lower case, and the role they mean."""

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of content parts that hold text: of chat completions, and of the Responses API."""

KEPT = ("name", "tool_call_id", "reasoning_content")
"""Text keys beside `content` that templates read."""


def role_of(turn: object) -> str | RowFault:
    """The role of a turn, by its `role` or `from`."""
    if not isinstance(turn, dict):
        return RowFault(f"a message is {kind(turn)}, expected an object with role and content")
    named = turn.get("role") if turn.get("role") is not None else turn.get("from")
    if named is None:
        return RowFault(f"a message without role; its keys: {', '.join(map(repr, turn))}")
    role = ROLES.get(named.lower()) if isinstance(named, str) else None
    return role or RowFault(f"unknown role {named!r}; known: {', '.join(ROLES)}")


def canonical_message(turn: dict[str, Any], role: str) -> dict[str, Any] | RowFault:
    """A turn of a known role in its canonical form."""
    if turn.get("function_call") is not None:
        return RowFault("function_call is the form before tool_calls; write it as tool_calls")
    calls = canonical_calls(turn.get("tool_calls"))
    if isinstance(calls, RowFault):
        return calls
    content = _content(turn, role, has_calls=bool(calls))
    if isinstance(content, RowFault):
        return content
    message: dict[str, Any] = {"role": role, "content": content}
    for key in KEPT:
        value = turn.get(key)
        if value is not None and not isinstance(value, str):
            return RowFault(f"{key} is {kind(value)}, expected text")
        if value is not None:
            message[key] = value
    if calls:
        message["tool_calls"] = calls
    return message


def _content(turn: dict[str, Any], role: str, *, has_calls: bool) -> str | RowFault:
    keys = ("content", "value") if turn.get("role") is not None else ("value", "content")
    key = next((key for key in keys if turn.get(key) is not None), keys[0] if keys[0] in turn else keys[1])
    if key not in turn and not has_calls:
        return RowFault(f"a {role} message without {keys[0]}; its keys: {', '.join(map(repr, turn))}")
    value = turn.get(key)
    if role == "user" and value is None:
        return RowFault("user content is null")
    text = flat_text(value)
    if role == "user" and isinstance(text, str) and not text.strip():
        return RowFault("user content is only white space" if text else "user content is empty")
    return text


def flat_text(content: object) -> str | RowFault:
    """Content as one text: null is empty, text parts are joined with nothing between, media is refused."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return RowFault(f"content is {kind(content)}, expected text or a list of text parts")
    texts: list[str] = []
    for part in content:
        text = _part_text(part)
        if isinstance(text, RowFault):
            return text
        texts.append(text)
    return "".join(texts)


def _part_text(part: object) -> str | RowFault:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return RowFault(f"a content part is {kind(part)}, expected {{type: text, text: ...}}")
    set_keys = {key for key, value in part.items() if value is not None}
    # Some clients leave the type out; what has nothing but a text is a text.
    if part.get("type") not in TEXT_PARTS and set_keys != {"text"}:
        return RowFault(f"a content part of type {part.get('type')!r}; only text can be sent")
    if not isinstance(part.get("text"), str):
        return RowFault(f"the text of a content part is {kind(part.get('text'))}")
    return str(part["text"])
