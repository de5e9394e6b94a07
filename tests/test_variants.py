"""Which prompt is asked which way, and the recipe each way comes to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import RecipeError
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.variants import DEFAULT, by_variant, variant_of

THINK_AND_FAST = [
    {"name": "think", "share": 0.8},
    {
        "name": "fast",
        "share": 0.2,
        "template_kwargs": {"thinking": False},
        "sampling": {"temperature": 0.5, "max_new_tokens": 64},
    },
]


def recipe(variants: Any, **model: Any) -> Recipe:
    data: dict[str, Any] = {
        "dataset": "d",
        "prompts": {"path": "p"},
        "model": {"name": "m", "context_length": 4096, "template_kwargs": {"thinking": True, "style": "x"}, **model},
        "sampling": {"temperature": 1.0, "top_p": 0.9, "max_new_tokens": 1024, "samples": 2},
        "variants": variants,
    }
    return parse_recipe(data, origin="x.yaml")


def asked(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_a_recipe_without_variants_is_its_own_only_one() -> None:
    alone = recipe(None)
    assert by_variant(alone) == {DEFAULT: alone}
    assert variant_of(alone, asked("hello"), None) == DEFAULT


def test_each_variant_is_a_whole_recipe_of_its_own() -> None:
    ways = by_variant(recipe(THINK_AND_FAST))
    think, fast = ways["think"], ways["fast"]
    assert list(ways) == ["think", "fast"]
    assert think.model.template_kwargs == {"thinking": True, "style": "x"}
    assert fast.model.template_kwargs == {"thinking": False, "style": "x"}
    assert (think.sampling.temperature, think.sampling.max_new_tokens) == (1.0, 1024)
    assert (fast.sampling.temperature, fast.sampling.max_new_tokens, fast.sampling.top_p) == (0.5, 64, 0.9)
    assert fast.sampling.samples == 2
    assert think.variants is fast.variants is None


def test_the_hash_chooses_by_share_and_always_the_same() -> None:
    two = recipe(THINK_AND_FAST)
    first = [variant_of(two, asked(f"question {n}"), None) for n in range(4000)]
    assert first == [variant_of(two, asked(f"question {n}"), None) for n in range(4000)]
    # 0.8 of 4000: within six standard deviations.
    assert abs(Counter(first)["think"] - 3200) < 6 * (4000 * 0.8 * 0.2) ** 0.5


def test_tools_are_part_of_the_prompt() -> None:
    halves = recipe([{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}])
    tools = [[{"type": "function", "function": {"name": f"f{n}"}}] for n in range(64)]
    assert {variant_of(halves, asked("the same"), each) for each in tools} == {"a", "b"}


def test_the_order_of_the_variants_changes_nothing() -> None:
    one, other = recipe(THINK_AND_FAST), recipe(THINK_AND_FAST[::-1])
    texts = [asked(f"question {n}") for n in range(200)]
    assert [variant_of(one, text, None) for text in texts] == [variant_of(other, text, None) for text in texts]


def test_a_third_variant_takes_from_the_others_and_moves_nothing_between_them() -> None:
    two = recipe([{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}])
    three = recipe([{"name": "a", "share": 0.4}, {"name": "b", "share": 0.4}, {"name": "c", "share": 0.2}])
    texts = [asked(f"question {n}") for n in range(400)]
    moved = {(variant_of(two, text, None), variant_of(three, text, None)) for text in texts}
    assert moved == {("a", "a"), ("b", "b"), ("a", "c"), ("b", "c")}


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.lists(st.text(max_size=8), min_size=1, max_size=64))
def test_a_changed_share_moves_prompts_one_way_only(one: float, other: float, texts: list[str]) -> None:
    def chosen(share: float) -> list[str]:
        two = recipe([{"name": "a", "share": share}, {"name": "b", "share": 1 - share}])
        return [variant_of(two, asked(text), None) for text in texts]

    before, after = chosen(one), chosen(other)
    moved = {(x, y) for x, y in zip(before, after, strict=True) if x != y}
    assert moved <= ({("b", "a")} if other > one else {("a", "b")})


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        ([{"name": "a", "share": 0.5}], "add up to 0.5, not to 1"),
        ([{"name": "a", "share": 0.5}, {"name": "a", "share": 0.5}], "a name of its own, got a, a"),
        ([{"name": "a", "share": 1, "sampling": {"temperature": 0}}], "a: Value error, samples > 1 at temperature 0"),
        ([{"name": "a", "share": 1, "sampling": {"max_new_tokens": 8192}}], "must be less than model.context_length"),
        ([{"name": "a", "share": 1, "sampling": {"samples": 3}}], "samples"),
        ([{"name": "a", "share": 1, "thinking": True}], "thinking"),
    ],
)
def test_variants_that_do_not_go_together_are_refused_by_name(variants: Any, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(variants)
    assert words in str(caught.value)
