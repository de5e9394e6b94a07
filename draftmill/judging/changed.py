"""Whether rows are judged by other rules now than when they were sealed.

Compares what `judge` uses and nothing else: not the evidence for a structure,
not its name, and of two ways to write one rule (`degenerate: auto` and its
number, `on_truncated: keep` and `continue`) neither is a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmill.judging.loops import AUTO_BOUND

NO_RULE = ("name", "evidence")
"""Fields of a structure that people read and `judge` does not."""


def structure_rules(structure: Mapping[str, Any]) -> dict[str, Any]:
    """Of a structure as JSON (`Structure.to_json`) what `judge` uses."""
    return {name: value for name, value in structure.items() if name not in NO_RULE}


def recipe_rules(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Of a recipe as JSON what `judge` uses."""
    bound = recipe.get("degenerate", "auto")
    return {
        "on_truncated": "quarantine" if recipe.get("on_truncated") == "quarantine" else "keep",
        "degenerate": AUTO_BOUND if bound == "auto" else bound,
    }


def changed_rules(
    sealed_recipe: Mapping[str, Any],
    sealed: Mapping[str, Mapping[str, Any]],
    recipe: Mapping[str, Any],
    structures: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """The rules that differ from those a manifest was sealed with, by name.

    All as JSON, structures by variant. A variant that the manifest does not know has no rows, one that the recipe
    has no more keeps its structure: neither counts.
    """
    before, now = recipe_rules(sealed_recipe), recipe_rules(recipe)
    names = [name for name in now if before[name] != now[name]]
    for variant, structure in structures.items():
        if variant in sealed and structure_rules(sealed[variant]) != structure_rules(structure):
            names.append("structure" if len(structures) == 1 else f"structure of {variant}")
    return names
