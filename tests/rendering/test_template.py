"""render_ids: the tokenizer's own ids, our date, the template's refusals as values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.recipe import Model
from draftmill.rendering.template import Refused, render_date, render_ids

Shaped = Callable[[str, str], PreTrainedTokenizerBase]

DAY = dt.date(2026, 1, 5)
BODY = "{% for m in messages %}{{ m.content }}{% endfor %}"
USER = [{"role": "user", "content": "Hi"}]


def render(tokenizer: PreTrainedTokenizerBase, messages: Any = USER, **options: Any) -> Any:
    return render_ids(tokenizer, messages, None, **{"template_kwargs": {}, "date": None, **options})


def text(tokenizer: PreTrainedTokenizerBase, **options: Any) -> str:
    return tokenizer.decode(render(tokenizer, **options).tolist())


@pytest.mark.parametrize(
    ("shape", "template"),
    [
        ("kimi", "moonshotai-Kimi-K2.5"),
        ("qwen3", "Qwen-Qwen3-0.6B"),
        ("deepseek", "deepseek-ai-DeepSeek-V3.1"),
        ("bare", "HuggingFaceTB-SmolLM2-135M-Instruct"),
    ],
)
@given(contents=st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_equals_the_tokenizers_own(shaped: Shaped, shape: str, template: str, contents: list[str]) -> None:
    tokenizer = shaped(shape, template)
    messages = [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]
    ids = render(tokenizer, messages)
    own = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, add_generation_prompt=True)
    assert ids.dtype == np.int32
    assert ids.tolist() == own


def test_exactly_one_bos(shaped: Shaped) -> None:
    tokenizer = shaped("deepseek", "deepseek-ai-DeepSeek-V3.1")
    assert render(tokenizer).tolist().count(tokenizer.bos_token_id) == 1


def test_tools_and_kwargs_reach_the_template(shaped: Shaped) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    tool = {"type": "function", "function": {"name": "weather"}}
    ids = render_ids(tokenizer, USER, [tool], template_kwargs={"thinking": False}, date=None)
    assert isinstance(ids, np.ndarray)
    assert '"name":"weather"' in tokenizer.decode(ids.tolist())
    assert ids[-2:].tolist() == [163606, 163607]


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%d %b %Y", "%B %-d, %Y", "%A", "%H:%M", "%T %h", "100%%", "%%d %d", "%%%d%%m"]
)
def test_the_recipes_date_in_every_form(shaped: Shaped, form: str) -> None:
    tokenizer = shaped("bare", "{{ strftime_now('" + form + "') }}" + BODY)
    assert text(tokenizer, date=DAY) == dt.datetime(2026, 1, 5).strftime(form) + "Hi"


def test_the_date_is_known_inside_the_templates_macros(shaped: Shaped) -> None:
    year = "{%- if strftime_now is defined -%}{{ strftime_now('%Y') }}{%- endif -%}"
    macro = "{%- macro head() -%}" + year + "{%- endmacro -%}"
    assert text(shaped("bare", macro + "{{ head() }}:" + BODY), date=DAY) == "2026:Hi"


def test_the_first_line_of_a_dated_template_is_as_it_was(shaped: Shaped) -> None:
    body = "\n    {% if true %}a{% endif %}\n{{ strftime_now('%Y') }}" + BODY
    tokenizer = shaped("bare", body)
    own = tokenizer.apply_chat_template(USER, tokenize=False)
    assert text(tokenizer, date=dt.date.today()) == own


def test_a_date_without_a_day_is_the_recipes_fault(shaped: Shaped) -> None:
    tokenizer = shaped("bare", "{{ strftime_now('%Y') }}" + BODY)
    with pytest.raises(RecipeError) as caught:
        render(tokenizer)
    assert caught.value.what == "the template prints the date: set model.date"


@pytest.mark.parametrize(
    ("form", "directive"),
    [("%s", "%s"), ("%Y %k", "%k"), ("%I %P", "%P"), ("%-H", "%-H"), ("%Ey", "%Ey"), ("%%%q", "%q"), ("100%", "%")],
)
def test_a_directive_that_is_not_known_is_named(shaped: Shaped, form: str, directive: str) -> None:
    tokenizer = shaped("bare", "{{ strftime_now('" + form + "') }}" + BODY)
    with pytest.raises(RecipeError, match="prints the date in a way that is not known") as caught:
        render(tokenizer, date=DAY)
    assert caught.value.value == f"strftime_now with {directive}"


def test_a_date_the_template_never_reaches_is_none(shaped: Shaped) -> None:
    template = "{% if not day is defined %}{% set day = strftime_now('%Y') %}{% endif %}{{ day }}:" + BODY
    assert text(shaped("bare", template), template_kwargs={"day": "1999"}) == "1999:Hi"


def test_the_recipes_date() -> None:
    assert render_date(Model(name="m", context_length=4096, date="today")) is not None
    assert render_date(Model(name="m", context_length=4096, date="2026-01-05")) == DAY
    assert render_date(Model(name="m", context_length=4096)) is None


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 1 }}", 'TypeError: can only concatenate str (not "int") to str'),
        ("{{ messages[7].content }}", "UndefinedError: list object has no element 7"),
        ("{{ 1 // 0 }}", "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_what_a_template_says_of_a_conversation_is_a_value(shaped: Shaped, template: str, words: str) -> None:
    assert render(shaped("bare", template)) == Refused(words)


def test_no_messages(shaped: Shaped) -> None:
    refused = render(shaped("bare", BODY), [])
    assert isinstance(refused, Refused)
    assert "empty conversation" in refused.words


def test_a_broken_template_is_the_recipes_fault(shaped: Shaped) -> None:
    with pytest.raises(RecipeError, match="not valid Jinja"):
        render(shaped("bare", "{% for m in messages %}{{ m.content }}"))


@pytest.mark.parametrize("name", ["tokenize", "messages", "strftime_now", "chat_template", "add_generation_prompt"])
def test_names_that_are_not_the_templates(shaped: Shaped, name: str) -> None:
    with pytest.raises(RecipeError, match="not the template's"):
        render(shaped("bare", BODY), template_kwargs={name: True})
