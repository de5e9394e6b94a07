"""The target model's vocabulary, as far as an export has to know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmill.dataset.manifest import Manifest
from draftmill.judging.structure import Structure, structures_from_json
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`size`: one more than the highest id the tokenizer has, holes counted. `special_ids`: the markers that the
    structures name. `load`: the tokenizer, for who decodes; raises DraftmillError where it is not at hand."""

    size: int
    special_ids: Mapping[str, list[int]]
    load: Callable[[], PreTrainedTokenizerBase]


def vocabulary_of(manifest: Manifest) -> Vocabulary:
    """The vocabulary of a dataset's model."""
    structures = structures_from_json(manifest.structures).values()
    model = parse_recipe(manifest.recipe, origin="the manifest").model
    size = max(structure.highest_id for structure in structures) + 1
    return Vocabulary(size, _special_ids(list(structures)), lambda: load_tokenizer(model))


def _special_ids(structures: list[Structure]) -> dict[str, list[int]]:
    kinds = {
        "opens_reasoning": [structure.open_ids for structure in structures],
        "closes_reasoning": [structure.close_ids for structure in structures],
        "ends_turn": [structure.end_ids for structure in structures],
    }
    return {kind: sorted({index for ids in markers for index in ids}) for kind, markers in kinds.items()}
