"""How the rows of one variant are asked: all that the pool needs to know of a variant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from draftmill.generation.continuing import slice_of
from draftmill.recipe import Recipe, Sampling
from draftmill.variants import by_variant


@dataclass(frozen=True, slots=True)
class Way:
    """`slice_tokens`: as `continuing.slice_of`. `end_ids` end a turn: nothing is asked on behind one."""

    sampling: Sampling
    slice_tokens: int | None
    end_ids: frozenset[int]


Ways = Mapping[str, Way]
"""By the variant's name."""


def ways_of(recipe: Recipe, end_ids: Mapping[str, Collection[int]]) -> Ways:
    """The ways of a recipe. `end_ids`: of the structure of each variant; its stop ids are added."""
    return {
        name: Way(alone.sampling, slice_of(alone), frozenset((*end_ids.get(name, ()), *alone.sampling.stop_token_ids)))
        for name, alone in by_variant(recipe).items()
    }
