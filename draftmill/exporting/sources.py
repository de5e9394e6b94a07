"""The datasets of an export: their newest manifests, each with its weight, all of one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.status import existing
from draftmill.dataset.storage import Storage, open_checked
from draftmill.errors import RecipeError
from draftmill.judging.structure import structures_from_json
from draftmill.records import Thinking

ONE_MODEL = ("name", "revision", "quantization")
"""Of a recipe's `model`: what must be the same, since a drafter is trained for one target."""


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset to export. `weight`: how often each of its rows stands in the export, on average; `thinking`: who opens
    the reasoning, by variant."""

    url: str
    storage: Storage
    manifest: Manifest
    weight: float
    thinking: dict[str, Thinking]


def open_sources(urls: Sequence[str], weights: Sequence[float]) -> list[Source]:
    """The datasets. Raises DatasetError; RecipeError for one that is none, wrong weights, or several models."""
    if weights and len(weights) != len(urls):
        raise RecipeError(
            "the weights are not as many as the datasets",
            value=f"{len(weights)} weights, {len(urls)} datasets",
            expected="one --weight for each dataset, in their order, or none",
            remedy="give the others the weight 1",
        )
    sources = [_source(url, weight) for url, weight in zip(urls, weights or [1.0] * len(urls), strict=True)]
    for source in sources[1:]:
        _check_one_model(sources[0], source)
    return sources


def _source(url: str, weight: float) -> Source:
    storage = open_checked(url)
    manifest = existing(storage)
    structures = structures_from_json(manifest.structures)
    thinking = {name: structure.thinking for name, structure in structures.items()}
    return Source(storage.url, storage, manifest, weight, thinking)


def _check_one_model(first: Source, other: Source) -> None:
    one, two = _told(first), _told(other)
    differ = [name for name in one if one[name] != two[name]]
    if differ:
        told = "; ".join(f"{name}: {one[name]!r} and {two[name]!r}" for name in differ)
        raise RecipeError(
            "datasets of different models cannot be mixed",
            value=f"{first.url} and {other.url} differ in {told}",
            expected="one target model: its ids and its distribution are what a drafter learns",
            remedy="export them apart",
        )


def _told(source: Source) -> dict[str, Any]:
    """What must be the same of two datasets."""
    model = source.manifest.recipe["model"]
    highest = max((structure["highest_id"] for structure in source.manifest.structures.values()), default=None)
    return {**{name: model.get(name) for name in ONE_MODEL}, "highest id of the vocabulary": highest}
