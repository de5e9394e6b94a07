"""What a template reads, and names in a recipe that it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.rendering.variables import check_template_kwargs, own_variables

Shaped = Callable[[str, str], PreTrainedTokenizerBase]

QWEN3 = "Qwen-Qwen3-0.6B"


def test_own_variables_are_not_the_renderers(shaped: Shaped) -> None:
    assert own_variables(shaped("qwen3", "{{ messages }}{{ eos_token }}{{ strftime_now('%d') }}{{ b }}{{ a }}")) == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("template", "kwargs"),
    [
        (QWEN3, {"enable_thinking": False}),
        ("moonshotai-Kimi-K2.5", {"thinking": False}),
        ("{{ messages }}{{ bos_token }}", {"bos_token": "x"}),
        ("{% if x is not defined %}{% set x = 1 %}{% endif %}{{ messages }}", {"x": 2}),
        ("{% macro write() %}{{ deep }}{% endmacro %}{{ write() }}", {"deep": 1}),
        ("{% for m in messages %}{% generation %}{{ inner }}{% endgeneration %}{% endfor %}", {"inner": 1}),
        ("{{ messages }}", {"chat_template": "x"}),  # the renderer's own: it refuses by itself
        ("{% if %}", {"thinking": False}),  # not Jinja: rendering says so
    ],
)
def test_names_that_something_reads(shaped: Shaped, template: str, kwargs: dict[str, Any]) -> None:
    check_template_kwargs(shaped("kimi", template), kwargs)


def test_a_name_that_is_never_read(shaped: Shaped) -> None:
    with pytest.raises(RecipeError, match="never reads") as caught:
        check_template_kwargs(shaped("qwen3", QWEN3), {"enable_thinking": True, "thinking": False, "zeal": 1})
    assert caught.value.value == "thinking, zeal"
    assert caught.value.expected == "variables the template reads: enable_thinking"
    with pytest.raises(RecipeError, match="it has none of its own"):
        check_template_kwargs(shaped("qwen3", "{% set thinking = 1 %}{{ messages }}"), {"thinking": False})


def test_a_switch_with_a_default_of_the_templates_own(shaped: Shaped) -> None:
    template = "{% set thinking = thinking | default(true) %}{{ messages }}"
    with pytest.raises(RecipeError, match="reads: thinking"):
        check_template_kwargs(shaped("qwen3", template), {"x": 1})


def test_switches_are_named_first(shaped: Shaped) -> None:
    with pytest.raises(RecipeError, match="reads: thinking, also"):
        check_template_kwargs(shaped("qwen3", "{{ also }}{{ thinking }}{{ messages }}"), {"x": 1})


def test_every_named_template_counts(shaped: Shaped) -> None:
    tokenizer = shaped("qwen3", "{{ messages }}")
    tokenizer.chat_template = {"default": "{{ messages }}{% set b = 1 %}", "tool_use": "{{ messages }}{{ a }}{{ b }}"}
    check_template_kwargs(tokenizer, {"a": 1, "b": 1})
    with pytest.raises(RecipeError, match="never reads"):
        check_template_kwargs(tokenizer, {"c": 1})
