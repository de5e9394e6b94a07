"""Several ways of asking in one recipe: which prompt is asked which way, and the recipe each way comes to.

A recipe with variants is a recipe for each: everything that derives, renders,
samples or judges works on those and knows nothing of the others. A hash of the
prompt's canonical form and the variants' names chooses (weighted rendezvous
hashing), so that neither the order of a source nor of the variants changes it,
and a changed share moves as few prompts as it can.
"""

from __future__ import annotations

import math
from typing import Any

from draftmill import identity
from draftmill.recipe import Recipe

DEFAULT = "default"
"""The variant of a recipe that has none. One of that name among others goes on with its rows."""

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
    prompt = identity.prompt_key(messages, tools, "")

    def score(name: str, share: float) -> tuple[float, str]:
        place = (int(identity.sha256(f"{prompt} {name}")[:HASH_DIGITS], 16) + 0.5) / 16**HASH_DIGITS
        return -share / math.log(place), name

    return max(score(variant.name, variant.share) for variant in recipe.variants)[1]
