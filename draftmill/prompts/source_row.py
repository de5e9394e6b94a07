"""What passes between the finding of files, a format's reader, the shapes and the loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read. `format`: known from its folder, else None; `named`: the recipe names this very file.

    `beside`: it lies in a saved folder but is none of its rows, and is named only.
    """

    path: str
    format: str | None = None
    named: bool = False
    beside: bool = False


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a file: its value, or the fault that kept it from being read. `line` counts from 1."""

    line: int
    value: dict[str, Any] | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why a row is not a prompt, in words for the owner of the file."""

    detail: str


JSON_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
"""JSON's own words for Python's types: what a file's owner knows."""


def kind(value: object) -> str:
    """What a JSON value is, for a message: `a number`, `a list`, `NaN`."""
    if isinstance(value, float) and value != value:
        return "NaN"
    return JSON_KINDS.get(type(value), type(value).__name__)
