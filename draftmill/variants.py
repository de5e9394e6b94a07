"""Several ways of asking in one recipe: which prompt is asked which way, and the recipe each way comes to.

A recipe with variants is a recipe for each: everything that derives, renders,
samples or judges works on those and knows nothing of the others. A hash of the
prompt's canonical form chooses, so that neither the order of a source nor a run
changes it; when a share changes, only the prompts between the old border and
the new one go over.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from draftmill import identity
from draftmill.recipe import Recipe

DEFAULT = "default"
"""The variant of a recipe that has none."""

HASH_DIGITS = 16
"""Hex digits of the hash that choose: 64 bits, finer than any share."""


def by_variant(recipe: Recipe) -> dict[str, Recipe]:
    """The recipe of each variant by its name, in the recipe's order; `{DEFAULT: recipe}` where there are none."""
    if recipe.variants is None:
        return {DEFAULT: recipe}
    return {variant.name: recipe.of_variant(variant) for variant in recipe.variants}


def variant_of(recipe: Recipe, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    """The variant that asks this prompt."""
    if recipe.variants is None:
        return DEFAULT
    place = int(identity.prompt_key(messages, tools, "")[:HASH_DIGITS], 16) / 16**HASH_DIGITS
    borders = accumulate(variant.share for variant in recipe.variants)
    # Shares that add up to a hair less than 1 leave the last one the rest.
    return next(
        (v.name for v, border in zip(recipe.variants, borders, strict=True) if place < border), recipe.variants[-1].name
    )
