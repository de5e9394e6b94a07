"""What the target's hidden states would weigh if they were stored for offline training.

EAGLE-3 reads three auxiliary layers and the last one, so four vectors of the model's
width for each id of a good row, two bytes a number. The width is read from the model's
config.json where it lies on this machine; nothing is fetched for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from draftmill.recipe import Model

LAYERS = 4
"""Vectors kept of each id: EAGLE-3's three auxiliary layers and the last."""

BYTES = 2
"""Of a number: bfloat16."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """`width`: numbers in a vector; `layers`: vectors of an id; `told_by`: what knows the width."""

    width: int
    layers: int
    told_by: str

    @property
    def bytes_an_id(self) -> int:
        return self.width * self.layers * BYTES


def hidden_of(model: Model, *, width: int | None = None, layers: int | None = None) -> Hidden | None:
    """What is given, else what the model's config.json says; None where neither knows the width."""
    if width is not None:
        return Hidden(width, layers or LAYERS, "--hidden-size")
    for place in _configs(model):
        try:
            config = json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        found = _width(config)
        if found is not None:
            return Hidden(found, layers or LAYERS, str(place))
    return None


def _width(config: object) -> int | None:
    """Of models for text and images it is the text part's."""
    for part in (config, config.get("text_config")) if isinstance(config, dict) else ():
        if isinstance(part, dict) and isinstance(found := part.get("hidden_size"), int) and found > 0:
            return found
    return None


def _configs(model: Model) -> list[Path]:
    """Where a config.json may lie: folders that the recipe names, and what a hub client has fetched before."""
    names = [(model.name, model.revision), (model.tokenizer, model.tokenizer_revision or model.revision)]
    found = [Path(name) / "config.json" for name, _ in names if name and Path(name).is_dir()]
    for name, revision in names:
        if name and not Path(name).is_dir() and (cached := _cached(name, revision)):
            found.append(Path(cached))
    return found


def _cached(name: str, revision: str | None) -> str | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None
    return path if isinstance(path, str) else None
