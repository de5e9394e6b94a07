"""Which fields of two recipes differ, and what each does to the rows there are."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from draftmill import recipe
from draftmill.identity import row_identity
from draftmill.recipe import Recipe
from draftmill.reporting.recipe_changes import Effect, effect_of, recipe_changes

BASE: dict[str, Any] = {
    "dataset": "/data",
    "prompts": {"path": ["/prompts.jsonl"]},
    "model": {"name": "m", "context_length": 4096},
    "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 32},
}
PARTS = {"prompts": recipe.Prompts, "model": recipe.Model, "sampling": recipe.Sampling, "engine": recipe.Engine}


def stored(**changes: Any) -> dict[str, Any]:
    """A recipe as a manifest has it; `sampling__top_p=0.9` changes a field of a part."""
    data = {name: dict(value) if isinstance(value, dict) else value for name, value in BASE.items()}
    for key, value in changes.items():
        part, _, name = key.rpartition("__")
        (data.setdefault(part, {}) if part else data)[name] = value
    return Recipe.model_validate(data).model_dump(mode="json")


def said(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Effect]]:
    return [(str(change), change.effect) for change in recipe_changes(old, new)]


def test_equal_recipes() -> None:
    assert said(stored(), stored()) == []


@pytest.mark.parametrize(
    ("change", "words", "effect"),
    [
        ({"sampling__temperature": 0.5}, "sampling.temperature: 1.0 -> 0.5", Effect.IDENTITY),
        ({"model__revision": "abc"}, "model.revision: not set -> abc", Effect.IDENTITY),
        ({"sampling__stop_token_ids": [7, 8]}, "sampling.stop_token_ids: [] -> [7, 8]", Effect.IDENTITY),
        ({"sampling__max_new_tokens": 64}, "sampling.max_new_tokens: 32 -> 64", Effect.BUDGET),
        ({"sampling__samples": 2}, "sampling.samples: 1 -> 2", Effect.SOURCE),
        ({"model__chat_template": "/t.jinja"}, "model.chat_template: not set -> /t.jinja", Effect.IDS),
        ({"on_truncated": "quarantine"}, "on_truncated: keep -> quarantine", Effect.RULES),
        ({"removed": "drop"}, "removed: keep -> drop", Effect.STORED),
        ({"engine__in_flight": 8}, "engine.in_flight: 256 -> 8", Effect.NONE),
        (
            {"prompts__path": ["/a.jsonl", "/b.jsonl"]},
            'prompts.path: /prompts.jsonl -> ["/a.jsonl", "/b.jsonl"]',
            Effect.SOURCE,
        ),
    ],
)
def test_a_field_by_name_with_both_values(change: dict[str, Any], words: str, effect: Effect) -> None:
    assert said(stored(), stored(**change)) == [(words, effect)]


def test_what_is_said_to_be_identity_is_what_a_rows_key_is_made_of() -> None:
    everything = {"revision": "r", "quantization": "fp8", "name": "other"}
    changes = {f"model__{name}": value for name, value in everything.items()}
    changes |= {"sampling__top_k": 5, "sampling__min_p": 0.1, "sampling__presence_penalty": 1.0}
    assert {effect for _, effect in said(stored(), stored(**changes))} == {Effect.IDENTITY}


def test_variants_by_name_and_only_with_what_they_have_of_their_own() -> None:
    def variants(share: float, **sampling: Any) -> dict[str, Any]:
        kwargs = {"thinking": True} if sampling else {}
        b = {"name": "b.2", "share": 1 - share, "sampling": sampling, "template_kwargs": kwargs}
        return stored(variants=[{"name": "a", "share": share}, b])

    old, new = variants(0.5), variants(0.75, temperature=0.5, max_new_tokens=16)
    assert said(old, new) == [
        ("variants.a.share: 0.5 -> 0.75", Effect.SOURCE),
        ("variants.b.2.share: 0.5 -> 0.25", Effect.SOURCE),
        ("variants.b.2.template_kwargs.thinking: not set -> true", Effect.IDS),
        ("variants.b.2.sampling.temperature: not set -> 0.5", Effect.IDENTITY),
        ("variants.b.2.sampling.max_new_tokens: not set -> 16", Effect.BUDGET),
    ]


def test_a_key_that_an_older_release_did_not_know_is_no_change() -> None:
    old = stored()
    del old["commit"], old["engine"]["weights"]
    assert said(old, stored()) == []


def test_a_recipe_that_is_none_any_more_is_compared_as_it_stands() -> None:
    old = stored() | {"gone": 1}
    del old["commit"]
    assert said(old, stored(removed="drop")) == [
        ("removed: keep -> drop", Effect.STORED),
        ("commit: not set -> create", Effect.NONE),
        ("gone: 1 -> not set", Effect.UNKNOWN),
    ]


def test_long_and_hostile_values_stay_on_their_line() -> None:
    (change,) = recipe_changes(stored(), stored(prompts__path=["/\x1b[2J\n" + "x" * 500]))
    assert "\x1b" not in str(change)
    assert "\n" not in str(change)
    assert len(str(change)) < 200


def _paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    return [
        path
        for name in model.model_fields
        for path in (_paths(PARTS[name], f"{name}.") if not prefix and name in PARTS else [f"{prefix}{name}"])
    ]


@pytest.mark.parametrize("path", [*_paths(Recipe), "variants.a.share", "variants.a.0.template_kwargs.think"])
def test_every_field_has_an_effect(path: str) -> None:
    shared = row_identity(Recipe.model_validate(BASE).model, Recipe.model_validate(BASE).sampling)
    identity = frozenset(f"{part}.{name}" for part, fields in shared.items() for name in fields)
    assert effect_of(path, identity) is not Effect.UNKNOWN
