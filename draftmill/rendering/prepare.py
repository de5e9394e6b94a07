"""A recipe's tokenizer, template and structure, ready to use, variant by variant: once per process.

`renders` is the digest of everything that decides how a conversation becomes
ids: part of the cache key of every rendered slice. `specimens` and `round_trips`
are what the gate holds a server to.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmill.arrays import Ids
from draftmill.errors import RecipeError
from draftmill.identity import digest
from draftmill.judging.derive import derive_structure, suspects
from draftmill.judging.structure import Marker, Structure
from draftmill.recipe import Recipe
from draftmill.rendering.round_trips import RoundTrip, round_trips
from draftmill.rendering.specimens import Specimen, specimens
from draftmill.rendering.template import Refused, render_date, render_ids
from draftmill.rendering.tokenizer import load_tokenizer, model_vocabulary, template_digest, tokenizer_digest
from draftmill.variants import by_variant

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CANARY_MESSAGES = [{"role": "user", "content": "Say hello."}]
"""What the gate asks, rendered as any prompt is."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What the stages need of a recipe's model, asked one way.

    `recipe`: the variant's own. `canary_ids`: the gate's prompt. `vocabulary`: how many ids the model itself
    has (rows of its embedding), by the config.json beside the tokenizer; None
    where that does not say. `suspects`: with which ids an answer of a plain model never begins, with the marker
    of reasoning they begin; empty unless plain was derived.
    """

    recipe: Recipe
    structure: Structure
    canary_ids: Ids
    renders: str
    provenance: dict[str, Any]
    specimens: tuple[Specimen, ...]
    round_trips: tuple[RoundTrip, ...]
    vocabulary: int | None
    suspects: Mapping[Marker, str] = field(default_factory=dict)


Variants = Mapping[str, Prepared]
"""By the name of each variant of a recipe, in its order; `variants.DEFAULT` alone where it has none."""


def prepare(recipe: Recipe) -> Variants:
    """Loads the tokenizer and derives each variant's structure.

    Raises RecipeError when either cannot be had, and for two variants that ask
    the same: a name in `template_kwargs` that this template does not heed.
    """
    tokenizer = load_tokenizer(recipe.model)  # the same for all, and so is what it and its template are known by
    provenance = {"tokenizer_sha256": tokenizer_digest(tokenizer), "chat_template_sha256": template_digest(tokenizer)}
    variants = {name: _prepared(alone, tokenizer, provenance) for name, alone in by_variant(recipe).items()}
    for (name, one), (other_name, other) in combinations(variants.items(), 2):
        if np.array_equal(one.canary_ids, other.canary_ids) and one.recipe.sampling == other.recipe.sampling:
            raise RecipeError(
                "two variants ask the same",
                value=f"{name} and {other_name}",
                expected="other prompt ids, or other sampling, for each variant",
                remedy="correct the variants' template_kwargs (`draftmill inspect` shows what the template makes of "
                "them), or make one of the two",
            )
    return variants


def renders(variants: Variants) -> str:
    """The digest of how the recipe's conversations become ids."""
    return digest({name: prepared.renders for name, prepared in variants.items()})


def structures_json(variants: Variants) -> dict[str, Any]:
    """Each variant's structure as JSON holds it."""
    return {name: prepared.structure.to_json() for name, prepared in variants.items()}


def _prepared(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, provenance: dict[str, Any]) -> Prepared:
    """Of one variant's recipe."""
    date, template_kwargs = render_date(recipe.model), recipe.model.template_kwargs
    how = digest({**provenance, "template_kwargs": template_kwargs, "date": str(date)})
    structure = derive_structure(tokenizer, recipe)
    canary = render_ids(tokenizer, CANARY_MESSAGES, None, template_kwargs=template_kwargs, date=date)
    if isinstance(canary, Refused):
        raise RecipeError(
            "the chat template refuses one plain user message",
            value=canary.words,
            expected="ids",
            remedy="correct model.chat_template or model.template_kwargs",
        )
    return Prepared(
        recipe,
        structure,
        canary,
        how,
        provenance,
        specimens(tokenizer, structure, template_kwargs=template_kwargs, today=dt.date.today()),
        round_trips(tokenizer, structure),
        model_vocabulary(recipe.model),
        suspects(tokenizer, recipe, structure),
    )
