"""A recipe's tokenizer, template and structure, ready to use: once per process.

`Prepared.renders` is the digest of everything that decides how a conversation
becomes ids: part of the cache key of every rendered slice. `specimens` and
`round_trips` are what the gate holds a server to.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from draftmill.arrays import Ids
from draftmill.errors import RecipeError
from draftmill.identity import digest
from draftmill.judging.derive import derive_structure
from draftmill.judging.structure import Structure
from draftmill.recipe import Recipe
from draftmill.rendering.round_trips import RoundTrip, round_trips
from draftmill.rendering.specimens import Specimen, specimens
from draftmill.rendering.template import Refused, render_date, render_ids
from draftmill.rendering.tokenizer import load_tokenizer, model_vocabulary, template_digest, tokenizer_digest

CANARY_MESSAGES = [{"role": "user", "content": "Say hello."}]
"""What the gate asks, rendered as any prompt is."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What the stages need of a recipe's model.

    `canary_ids`: the gate's prompt. `vocabulary`: how many ids the model itself
    has (rows of its embedding), by the config.json beside the tokenizer; None
    where that does not say.
    """

    structure: Structure
    canary_ids: Ids
    renders: str
    provenance: dict[str, Any]
    specimens: tuple[Specimen, ...]
    round_trips: tuple[RoundTrip, ...]
    vocabulary: int | None


def prepare(recipe: Recipe) -> Prepared:
    """Loads the tokenizer and derives the structure. Raises RecipeError when either cannot be had."""
    tokenizer = load_tokenizer(recipe.model)
    provenance = {"tokenizer_sha256": tokenizer_digest(tokenizer), "chat_template_sha256": template_digest(tokenizer)}
    date, template_kwargs = render_date(recipe.model), recipe.model.template_kwargs
    renders = digest({**provenance, "template_kwargs": template_kwargs, "date": str(date)})
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
        structure,
        canary,
        renders,
        provenance,
        specimens(tokenizer, structure, template_kwargs=template_kwargs, today=dt.date.today()),
        round_trips(tokenizer, structure),
        model_vocabulary(recipe.model),
    )
