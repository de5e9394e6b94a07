"""Tools and tool calls as templates want them: lists of objects.

Files hold both as JSON text or as objects. Arguments left as text would be
encoded twice by one template and refused by the next, so they become objects
here. Nulls that Arrow filled in go, also deep inside `tools`, where JSON Schema
has no null but for `default` and `const`; inside `arguments` a null is the
author's and stays.
"""

from __future__ import annotations

import json
from typing import Any

from draftmill.prompts.source_row import RowFault, kind

NULL_IS_A_VALUE = ("default", "const")
"""Keys of JSON Schema that may be null."""


def canonical_tools(value: object) -> list[dict[str, Any]] | RowFault | None:
    """The `tools` of a row; none, an empty list and empty text are all None."""
    if isinstance(value, str) and value.strip():
        parsed = parse_json(value)
        if isinstance(parsed, RowFault):
            return RowFault(f"tools is text that is {parsed.detail}")
        value = parsed
    if value is None or value == [] or value == "" or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, list):
        return RowFault(f"tools is {kind(value)}, expected a list of objects")
    odd = next((tool for tool in value if not isinstance(tool, dict)), None)
    if odd is not None or None in value:
        return RowFault(f"a tool is {kind(odd)}, expected an object")
    return [_schema_without_nulls(tool) for tool in value]


def canonical_calls(value: object) -> list[dict[str, Any]] | RowFault:
    """The `tool_calls` of a message, also as JSON text, arguments as objects; null is an empty list."""
    if isinstance(value, str) and value.strip():
        value = parse_json(value)
        if isinstance(value, RowFault):
            return RowFault(f"tool_calls is text that is {value.detail}")
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    if not isinstance(value, list):
        return RowFault(f"tool_calls is {kind(value)}, expected a list")
    calls: list[dict[str, Any]] = []
    for item in value:
        call = _call(item)
        if isinstance(call, RowFault):
            return call
        calls.append(call)
    return calls


def parse_json(text: str) -> Any:
    """JSON text as a value, or a RowFault in the parser's words."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        return RowFault(f"not JSON: {error.msg} (character {error.pos + 1})")
    except (ValueError, RecursionError) as error:
        return RowFault(f"not readable as JSON: {error}")


def _call(item: object) -> dict[str, Any] | RowFault:
    if not isinstance(item, dict):
        return RowFault(f"a tool call is {kind(item)}, expected an object")
    call = _without_nulls(item)
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return RowFault("a tool call without a function name")
    arguments = _arguments(function.get("arguments"))
    if isinstance(arguments, RowFault):
        return arguments
    named = {**function, "arguments": arguments}
    return {**call, "function": named} if "function" in call else named


def _arguments(value: object) -> dict[str, Any] | RowFault:
    if isinstance(value, str) and value.strip():
        value = parse_json(value)
        if isinstance(value, RowFault):
            return RowFault(f"the arguments of a tool call are {value.detail}")
    elif value is None or isinstance(value, str):
        return {}
    if isinstance(value, dict):
        return value
    return RowFault(f"the arguments of a tool call are {kind(value)}, expected an object")


def _schema_without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item is not None or key in NULL_IS_A_VALUE}
        return {key: _schema_without_nulls(item) for key, item in kept.items()}
    return [_schema_without_nulls(item) for item in value] if isinstance(value, list) else value


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    kept = {key: item for key, item in value.items() if item is not None}
    function = kept.get("function")
    if isinstance(function, dict):
        kept["function"] = {key: item for key, item in function.items() if item is not None}
    return kept
