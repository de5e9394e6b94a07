"""Structures derived from real chat templates: who opens the reasoning, with which ids, and what ends the turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.judging.derive import derive_structure, inspect
from draftmill.recipe import Model, Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Thinking
from draftmill.rendering.tokenizer import load_tokenizer

Shaped = Callable[[str, str], PreTrainedTokenizerBase]

KIMI = "moonshotai-Kimi-K2.5"
QWEN3 = "Qwen-Qwen3-0.6B"
V31 = "deepseek-ai-DeepSeek-V3.1"

PROMPT, MODEL, CLOSED = Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL, Thinking.CLOSED_BY_PROMPT

# shape, template, template_kwargs, who opens, [open, close], ends of the turn, last ids of the prompt
FAMILIES = [
    ("kimi", KIMI, {}, PROMPT, [163606, 163607], [163585, 163586], [163601, 163606]),
    ("kimi", KIMI, {"thinking": False}, CLOSED, [163606, 163607], [163585, 163586], [163601, 163606, 163607]),
    ("kimi", "moonshotai-Kimi-K2-Thinking", {}, MODEL, [163606, 163607], [163585, 163586], [163601]),
    ("qwen3", QWEN3, {}, MODEL, [151667, 151668], [151645], [181]),
    ("qwen3", QWEN3, {"enable_thinking": False}, CLOSED, [151667, 151668], [151645], [151667, 1099, 151668, 1099]),
    ("qwen3", "Qwen-Qwen3-4B-Thinking-2507", {}, PROMPT, [151667, 151668], [151645], [151667, 181]),
    ("qwen3", "Qwen-QwQ-32B@16488a", {}, PROMPT, [151667, 151668], [151645], [151667, 181]),
    ("deepseek", V31, {}, CLOSED, [128798, 128799], [1], [128804, 128798, 128799]),
    ("deepseek", V31, {"thinking": True}, PROMPT, [128798, 128799], [1], [128804, 128798]),
]


def recipe(structure: str = "auto", **model: Any) -> Recipe:
    return parse_recipe(
        {
            "dataset": "/nowhere",
            "prompts": {"path": "p.jsonl"},
            "model": {"name": "/", "context_length": 4096, **model},
            "sampling": {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 512},
            "structure": structure,
        },
        origin="test",
    )


@pytest.mark.parametrize(("shape", "template", "kwargs", "thinking", "pair", "ends", "tail"), FAMILIES)
def test_families(
    shaped: Shaped,
    shape: str,
    template: str,
    kwargs: dict[str, Any],
    thinking: Thinking,
    pair: list[int],
    ends: list[int],
    tail: list[int],
) -> None:
    structure = derive_structure(shaped(shape, template), recipe(template_kwargs=kwargs))
    assert (structure.name, structure.thinking) == ("think", thinking)
    assert [*structure.open_ids, *structure.close_ids] == pair
    assert list(structure.end_ids) == ends
    assert list(structure.tail_ids[-len(tail) :]) == tail


def test_kimi_in_full(shaped: Shaped) -> None:
    structure = derive_structure(shaped("kimi", KIMI), recipe())
    assert structure.foreign_ids == (163584, 163587, 163588, 163594, 163601)
    assert structure.tail_ids[0] == 163588
    assert structure.highest_id == 163839
    assert not {163606, 163607} & {*structure.foreign_ids, *structure.end_ids}
    assert any("'<think>' [163606]" in line for line in structure.evidence)


def test_a_stop_id_of_the_recipe_ends_turns(shaped: Shaped) -> None:
    asked = recipe()
    asked = asked.model_copy(update={"sampling": asked.sampling.model_copy(update={"stop_token_ids": [163601]})})
    structure = derive_structure(shaped("kimi", KIMI), asked)
    assert 163601 in structure.end_ids
    assert 163601 not in structure.foreign_ids


def test_smollm2_is_plain(shaped: Shaped) -> None:
    structure = derive_structure(shaped("bare", "HuggingFaceTB-SmolLM2-135M-Instruct"), recipe())
    assert (structure.name, structure.thinking) == ("plain", Thinking.NONE)
    assert (structure.open_ids, structure.close_ids) == ((), ())
    assert structure.end_ids == (151645,)
    assert structure.foreign_ids == (151644,)


def test_the_embedded_engines_model() -> None:
    asked = recipe(tokenizer="embedded")
    structure = derive_structure(load_tokenizer(asked.model), asked)
    assert (structure.name, structure.end_ids, structure.foreign_ids) == ("plain", (2,), (1,))
    assert structure.tail_ids == (1, 520, 9531, 198)
    assert structure.highest_id == 49151


def test_a_template_that_ends_a_turn_by_the_next_ones_marker(shaped: Shaped) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}{% endfor %}<|im_start|>assistant:"
    assert derive_structure(shaped("bare", template), recipe()).end_ids == (151644, 151645)


def test_never_a_silent_plain(shaped: Shaped) -> None:
    tokenizer = shaped("qwen3", "Qwen-Qwen3-4B-Instruct-2507")  # knows <think>, but its template does not
    with pytest.raises(RecipeError) as caught:
        derive_structure(tokenizer, recipe())
    assert "structure:" in caught.value.remedy
    assert "'<think>' (151667)" in str(caught.value.value)
    named = derive_structure(tokenizer, recipe("plain"))
    assert (named.name, named.end_ids) == ("plain", (151645,))


@pytest.mark.parametrize(
    "ending",
    [
        "<think>of course",  # something behind the marker
        "<think>[THINK]",  # two pairs at work
        "<|channel|>analysis",  # a family that is not on the shelf
    ],
)
def test_what_cannot_be_decided_is_refused(shaped: Shaped, ending: str) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>" + ending
    with pytest.raises(RecipeError, match="cannot be decided"):
        derive_structure(shaped("qwen3", template), recipe())


def test_a_marker_of_several_ids_needs_the_closing_one_in_the_template(shaped: Shaped) -> None:
    block = "{% if m.role == 'assistant' %}<think>ok</think>{% endif %}"
    template = (
        "{% for m in messages %}<|im_start|>" + block + "{{ m.content }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|><think>{% endif %}"
    )
    tokenizer = shaped("bare", template)
    structure = derive_structure(tokenizer, recipe())
    assert structure.thinking is Thinking.OPENED_BY_PROMPT
    assert len(structure.open_ids) > 1
    assert tokenizer.decode(list(structure.close_ids)) == "</think>"

    with pytest.raises(RecipeError, match="cannot be decided"):
        derive_structure(shaped("bare", template.replace(block, "")), recipe())


def test_named_think_must_fit(shaped: Shaped) -> None:
    with pytest.raises(RecipeError, match="does not have the structure the recipe names"):
        derive_structure(shaped("bare", "HuggingFaceTB-SmolLM2-135M-Instruct"), recipe("think"))


def test_no_id_ends_a_turn(shaped: Shaped) -> None:
    tokenizer = shaped("bare", "{% for m in messages %}{{ m.content }}\n{% endfor %}")
    tokenizer.eos_token = None
    with pytest.raises(RecipeError, match="no id ends a turn"):
        derive_structure(tokenizer, recipe())


def test_generation_config_ends_turns(shaped: Shaped, tmp_path: Any) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [151645, 151643]}')
    structure = derive_structure(shaped("qwen3", QWEN3), recipe(name=str(tmp_path)))
    assert structure.end_ids == (151643, 151645)


def test_inspect_as_the_contract_says(shaped: Shaped) -> None:
    found = inspect(shaped("kimi", KIMI), Model(name="/", context_length=4096))
    assert list(found) == [
        "structure", "thinking", "open_ids", "close_ids", "end_ids", "prompt_tail", "prompt_tail_text",
        "keeps_history_reasoning", "depends_on_date", "highest_id", "evidence",
    ]  # fmt: skip
    assert found["thinking"] == "opened_by_prompt"
    assert found["prompt_tail"][-1] == 163606
    assert found["prompt_tail_text"] == "<|im_assistant|>assistant<|im_middle|><think>"
    assert (found["highest_id"], found["depends_on_date"], found["keeps_history_reasoning"]) == (163839, False, False)


def test_inspect_says_that_a_template_prints_the_date(shaped: Shaped) -> None:
    template = "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    found = inspect(shaped("bare", template), Model(name="/", context_length=4096))
    assert found["depends_on_date"] is True
    assert any("model.date" in line for line in found["evidence"])
    with pytest.raises(RecipeError, match=r"set model\.date"):
        derive_structure(shaped("bare", template), recipe())
    assert derive_structure(shaped("bare", template), recipe(date="2026-01-05")).name == "plain"
