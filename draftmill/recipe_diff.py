"""Two recipes leaf by leaf: which fields differ, from what to what.

Works on resolved recipes as JSON, so that what a manifest stores and what a
run was given compare alike. A list is one leaf: what moved inside it is for
people to see. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Changed:
    """One field, dotted (`sampling.top_p`); None where a side does not have it."""

    field: str
    old: Any
    new: Any


def recipe_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Changed]:
    """The fields that differ, in the order of `new`, then what only `old` has."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    fields = dict.fromkeys([*after, *before])
    pairs = ((name, before.get(name), after.get(name)) for name in fields)
    return [Changed(*pair) for pair in pairs if not _same(pair[1], pair[2])]


def _leaves(data: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in data.items():
        nested = isinstance(value, Mapping) and value
        found += _leaves(value, f"{prefix}{name}.") if nested else [(f"{prefix}{name}", value)]
    return found


def _same(old: Any, new: Any) -> bool:
    # False == 0 and True == 1 in Python; in a recipe they are different things. 1 and 1.0 are not.
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)
