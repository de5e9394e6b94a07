"""Two recipes field by field: what differs, and what each difference does to rows.

Works on recipes as manifests store them (anchored, JSON): leaf by leaf, a
variant's under its name. What one of them does not have shows as `not set`; a key
that an older release did not know yet has the value it has by default, so that
an upgrade alone changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from draftmill.identity import row_identity
from draftmill.recipe import Recipe
from draftmill.recipe_diff import recipe_diff
from draftmill.reporting.plain_text import plain

SHOWN_CHARS = 80
"""Of a value: a list of a hundred prompt files would hide the other lines."""

UNSET = "not set"
EMPTY: tuple[object, ...] = (None, {})


class Effect(StrEnum):
    """What another value of a field does to the rows there are."""

    IDENTITY = "part of a row's identity: its rows are asked anew"
    IDS = "only prompts whose ids change by it are asked anew"
    SOURCE = "which prompts and samples there are"
    BUDGET = "only rows cut by length are asked again"
    RULES = "a rule: stored rows are judged again, without a request"
    STORED = "what becomes of stored rows"
    NONE = "no effect on rows"
    UNKNOWN = "no field of this release"


@dataclass(frozen=True, slots=True)
class RecipeChange:
    """A field with another value. `old`, `new`: as people read them."""

    path: str
    old: str
    new: str
    effect: Effect

    def __str__(self) -> str:
        return f"{plain(self.path)}: {self.old} -> {self.new}"


_EFFECTS: Mapping[str, Effect] = {
    "dataset": Effect.NONE,
    "prompts": Effect.SOURCE,
    "model": Effect.IDS,
    "template_kwargs": Effect.IDS,  # a variant's
    "model.trust_remote_code": Effect.NONE,
    "sampling.max_new_tokens": Effect.BUDGET,
    "sampling.samples": Effect.SOURCE,
    "variants": Effect.SOURCE,
    "engine": Effect.NONE,
    "structure": Effect.RULES,
    "degenerate": Effect.RULES,
    "breaker": Effect.NONE,
    "chunk_rows": Effect.NONE,
    "removed": Effect.STORED,
    "on_truncated": Effect.RULES,
    "continue_times": Effect.BUDGET,
    "commit": Effect.NONE,
    "keep_messages": Effect.NONE,
}
"""By path, the longest that a field's path begins with. What is part of the identity, `row_identity` says itself."""

_OWN = ("sampling", "template_kwargs")
"""What a variant has in place of the recipe's."""


def recipe_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[RecipeChange]:
    """The fields that differ, in the new recipe's order, then those that only the old one has."""
    identity = _identity_paths(new)
    return [
        RecipeChange(found.field, _shown(found.old), _shown(found.new), effect_of(found.field, identity))
        for found in recipe_diff(_comparable(old), _comparable(new))
        if found.old not in EMPTY or found.new not in EMPTY
    ]


def effect_of(path: str, identity: frozenset[str]) -> Effect:
    """The effect of the field at `path`; `identity`: the paths that `row_identity` takes."""
    if path.startswith("variants."):  # a variant's name may have dots in it
        path = next((part + path.partition(f".{part}")[2] for part in _OWN if f".{part}" in path), path)
    if path in identity:
        return Effect.IDENTITY
    parts = path.split(".")
    while parts and ".".join(parts) not in _EFFECTS:
        parts.pop()
    return _EFFECTS[".".join(parts)] if parts else Effect.UNKNOWN


def _identity_paths(recipe: Mapping[str, Any]) -> frozenset[str]:
    """The fields whose values are in a row's key, as paths of a recipe."""
    parsed = Recipe.model_validate(recipe)
    shared = row_identity(parsed.model, parsed.sampling)
    return frozenset(f"{part}.{name}" for part, fields in shared.items() for name in fields)


def _comparable(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """With every default, and the variants under their names with what they have of their own."""
    try:
        known = Recipe.model_validate(recipe).model_dump(mode="json")
    except ValidationError:  # sealed by a release with other keys: as it stands
        known = dict(recipe)
    return known | {"variants": {variant["name"]: _own(variant) for variant in known.get("variants") or ()}}


def _own(variant: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {name: value for name, value in variant.get("sampling", {}).items() if value is not None}
    return {**{name: value for name, value in variant.items() if name != "name"}, "sampling": sampling}


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:  # one prompt file
        value = value[0]
    if value in EMPTY:
        return UNSET
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return plain(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")
