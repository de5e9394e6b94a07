"""The shapes in which files hold prompts, decided row by row.

The first of SHAPES whose column is there and not null is the row's shape; a
neighbour's columns never matter. Two optional columns go with every shape:
`system` (a system prompt in front) and `tools`. An answer that ends a
conversation is dropped: it is what the model gives anew. What is not a prompt is
a RowFault that says what was found, never a guess.

Order matters where exports hold a prompt twice: alpaca files have the whole
formatted conversation in `text` beside `instruction`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from draftmill.identity import ordered_json
from draftmill.prompts.messages import canonical_message, role_of
from draftmill.prompts.source_row import RowFault, kind
from draftmill.prompts.tools import canonical_tools, parse_json


@dataclass(frozen=True, slots=True)
class PromptParts:
    """A row as a prompt. `canonical` is the JSON of `{"messages": messages, "tools": tools}`."""

    shape: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    canonical: str


Turns = list[Any]
Column = Callable[[str], Any]
"""The row's value under one of our names, `recipe.prompts.fields` applied; null when it is not there."""


def to_prompt(
    row: dict[str, Any], *, fields: dict[str, str], turns: Literal["last", "all"] = "last"
) -> PromptParts | RowFault:
    """A source row as canonical messages and tools; `fields` maps our column names to the file's.

    `turns`: the recipe's; user turns without answers between them can only be asked one after the other.
    """
    try:
        return _to_prompt(row, fields, turns)
    except RecursionError:
        return RowFault("nested too deeply")
    except ValueError as error:
        return RowFault(f"a prompt that cannot be written down: {error}")


def _to_prompt(row: dict[str, Any], fields: dict[str, str], turns: str) -> PromptParts | RowFault:
    def column(name: str) -> Any:
        return row.get(fields.get(name, name))

    # A name that the recipe maps was meant: it goes before the others.
    order = sorted(SHAPES, key=lambda name: name not in fields) if fields else SHAPES
    shape = next((name for name in order if column(name) is not None), None)
    if shape is None:
        return _no_shape(row, fields)
    found = SHAPES[shape](column)
    if isinstance(found, RowFault):
        return found
    messages = _messages(found[:1] if shape == "turns" and turns == "last" else found)
    if isinstance(messages, RowFault):
        return messages
    messages = _with_system(messages, column("system"))
    tools = canonical_tools(column("tools"))
    if isinstance(messages, RowFault):
        return messages
    if isinstance(tools, RowFault):
        return tools
    canonical = ordered_json({"messages": messages, "tools": tools})
    return PromptParts(shape, messages, tools, canonical)


def _conversation(name: str) -> Callable[[Column], Turns | RowFault]:
    def turns(column: Column) -> Turns | RowFault:
        value = column(name)
        if isinstance(value, str):
            # Exports of columnar stores hold the list as JSON text.
            value = parse_json(value)
            if isinstance(value, RowFault):
                return RowFault(f"{name} is text that is {value.detail}")
        if isinstance(value, dict):
            value = _transposed(value) or value
        if not isinstance(value, list):
            return RowFault(f"{name} is {kind(value)}, expected a list of messages")
        return value or RowFault(f"{name} is empty")

    return turns


def _transposed(value: dict[str, Any]) -> Turns | None:
    """A list of messages that Hugging Face `datasets` keeps as an object of lists, one a key."""
    columns = [column for column in value.values() if column is not None]
    if not columns or not all(isinstance(column, list) for column in columns) or len(set(map(len, columns))) != 1:
        return None
    names = [name for name, column in value.items() if column is not None]
    return [dict(zip(names, turn, strict=True)) for turn in zip(*columns, strict=True)]


def _prompt(column: Column) -> Turns | RowFault:
    value = column("prompt")
    if isinstance(value, dict):
        value = _transposed(value) or value
    if isinstance(value, list):
        odd = next((item for item in value if not isinstance(item, dict)), None)
        return value or RowFault("prompt is empty") if odd is None else RowFault(f"prompt is a list with {kind(odd)}")
    return _one_user(value, "prompt")


def _instruction(column: Column) -> Turns | RowFault:
    instruction, extra = column("instruction"), column("input")
    if not isinstance(instruction, str):
        return _one_user(instruction, "instruction")
    if extra is not None and not isinstance(extra, str):
        return RowFault(f"input is {kind(extra)}, expected text")
    return _one_user(f"{instruction}\n\n{extra}" if extra else instruction, "instruction")


def _user_turns(column: Column) -> Turns | RowFault:
    # User turns without the answers between them. Empty answers stand where the model is asked (prompts.turns: all).
    value = column("turns")
    if not isinstance(value, list) or not value:
        return RowFault("turns is empty" if value == [] else f"turns is {kind(value)}, expected a list of texts")
    turns: Turns = []
    for number, text in enumerate(value, 1):
        turn = _one_user(text, f"turn {number}")
        if isinstance(turn, RowFault):
            return turn
        turns += [*turn, {"role": "assistant", "content": ""}]
    return turns


def _text(column: Column) -> Turns | RowFault:
    return _one_user(column("text"), "text")


def _one_user(value: object, name: str) -> Turns | RowFault:
    if not isinstance(value, str):
        return RowFault(f"{name} is {kind(value)}, expected text")
    if not value.strip():
        return RowFault(f"{name} is only white space" if value else f"{name} is empty")
    return [{"role": "user", "content": value}]


SHAPES: dict[str, Callable[[Column], Turns | RowFault]] = {
    "messages": _conversation("messages"),
    "conversations": _conversation("conversations"),
    "conversation": _conversation("conversation"),
    "prompt": _prompt,
    "instruction": _instruction,
    "turns": _user_turns,
    "text": _text,
}
"""Column that makes the shape, and its reader; in order of precedence."""

FIELDS = (*SHAPES, "input", "system", "tools", "id")
"""The names that `recipe.prompts.fields` may map."""


def _no_shape(row: dict[str, Any], fields: dict[str, str]) -> RowFault:
    nulls = [name for name in SHAPES if fields.get(name, name) in row]
    if nulls:
        return RowFault(f"{nulls[0]} is empty (null)")
    columns = ", ".join(map(repr, row)) or "none"
    return RowFault(f"no prompt column; found: {columns}; known: {', '.join(SHAPES)} (prompts.fields maps other names)")


def _messages(turns: Turns) -> list[dict[str, Any]] | RowFault:
    roles: list[str] = []
    for turn in turns:
        role = role_of(turn)
        if isinstance(role, RowFault):
            return role
        roles.append(role)
    while roles and roles[-1] == "assistant":
        roles.pop()
    if "user" not in roles:
        return RowFault("no user message")
    first = next(role for role in roles if role not in ("system", "developer"))
    if first == "tool":
        return RowFault("the conversation begins with a tool message")
    messages: list[dict[str, Any]] = []
    for turn, role in zip(turns, roles, strict=False):
        message = canonical_message(turn, role)
        if isinstance(message, RowFault):
            return message
        messages.append(message)
    return messages


def _with_system(messages: list[dict[str, Any]], system: object) -> list[dict[str, Any]] | RowFault:
    if system is None or system == "":
        return messages
    if not isinstance(system, str):
        return RowFault(f"system is {kind(system)}, expected text")
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    same = messages[0]["content"] == system
    return messages if same else RowFault("two system prompts: the system column and the first message differ")
