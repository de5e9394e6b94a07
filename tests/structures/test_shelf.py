"""Structures derived from real chat templates: who opens the reasoning, with which ids, and what ends the turn."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.judging import derive
from draftmill.judging.derive import derive_structure, inspect, suspects
from draftmill.judging.structure import Structure, ids_at
from draftmill.recipe import Model, Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Thinking
from draftmill.rendering.marker_forms import places
from draftmill.rendering.tokenizer import EndIds, load_tokenizer
from draftmill.serving.shaped import shaped_tokenizer
from infra.template_table import templates

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
    assert {151667, 151668} <= set(named.foreign_ids)


def test_plain_is_no_word_against_a_prompt_that_opens(shaped: Shaped) -> None:
    with pytest.raises(RecipeError, match="does not have the structure the recipe names: plain") as caught:
        derive_structure(shaped("qwen3", "Qwen-Qwen3-4B-Thinking-2507"), recipe("plain"))
    assert "<think>" in str(caught.value.value)


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}])
def test_both_markers_are_foreign_to_a_named_plain_model(shaped: Shaped, kwargs: dict[str, Any]) -> None:
    structure = derive_structure(shaped("qwen3", QWEN3), recipe("plain", template_kwargs=kwargs))
    assert (structure.name, structure.open_ids, structure.close_ids) == ("plain", (), ())
    assert {151667, 151668} <= set(structure.foreign_ids)


def test_markers_of_text_are_foreign_to_nobody(shaped: Shaped) -> None:
    structure = derive_structure(shaped("bare", TEXT_MARKERS.replace("<think>", "<think></think>")), recipe("plain"))
    assert structure.foreign_ids == (151644,)


def test_suspects_are_of_a_derived_plain_structure_only(shaped: Shaped) -> None:
    smollm2, qwen3 = shaped("bare", "HuggingFaceTB-SmolLM2-135M-Instruct"), shaped("qwen3", QWEN3)
    derived = suspects(smollm2, recipe(), derive_structure(smollm2, recipe()))
    assert {"<think>", "<reasoning>", "[THINK]"} <= set(derived.values())
    assert not suspects(smollm2, recipe("plain"), derive_structure(smollm2, recipe("plain")))
    assert not suspects(qwen3, recipe(), derive_structure(qwen3, recipe()))


def test_a_name_the_template_never_reads_is_refused(shaped: Shaped) -> None:
    asked = recipe(template_kwargs={"thinking": False})
    for use in (derive_structure, inspect):
        with pytest.raises(RecipeError, match="never reads") as caught:
            use(shaped("qwen3", QWEN3), asked)
        assert "enable_thinking" in caught.value.expected


def test_what_could_not_be_looked_for_is_evidence(shaped: Shaped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "generation_end_ids", lambda model: EndIds((), "nobody could look"))
    assert "nobody could look" in inspect(shaped("qwen3", QWEN3), recipe())["evidence"]


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


TEXT_MARKERS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def test_markers_that_are_ordinary_text_have_several_forms(shaped: Shaped) -> None:
    tokenizer = shaped("bare", TEXT_MARKERS)
    structure = derive_structure(tokenizer, recipe())
    assert structure.thinking is Thinking.OPENED_BY_PROMPT
    assert len(structure.open_ids) > 1
    assert structure.open_ids in [structure.tail_ids[i:][: len(structure.open_ids)] for i in range(8)]
    assert len(structure.closes) > 1
    spelled = [
        ids for form in structure.closes for ids in itertools.product(*(ids_at(form, i) for i in range(len(form))))
    ]
    assert len(spelled) > 30
    assert all("</think>" in tokenizer.decode(list(ids)) for ids in spelled)
    assert any("forms of its ids" in line for line in structure.evidence)


def test_markers_of_text_that_share_an_id(shaped: Shaped) -> None:
    structure = derive_structure(shaped("bare", TEXT_MARKERS.replace("<think>\n", "<think></think>")), recipe())
    assert structure.thinking is CLOSED


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("So it is Paris.", "\n\nParis"),
        ("42\n", "\nThe answer"),
        ("done", " ok"),
        ("x = 1)\n\n", "\n\n# Title"),
        ("", ""),
    ],
)
def test_a_form_is_found_in_whatever_the_model_writes(shaped: Shaped, before: str, behind: str) -> None:
    tokenizer = shaped("bare", TEXT_MARKERS)
    structure = derive_structure(tokenizer, recipe())
    ids = tokenizer.encode(before + "</think>" + behind, add_special_tokens=False)
    assert len(places(tuple(ids), structure.closes)) == 1


TEMPLATES = dict(templates())

GPT_OSS = {
    "<|return|>": 200002,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}


def gpt_oss(folder: Path, template: str) -> PreTrainedTokenizerBase:
    roles = {"eos_token": "<|return|>"}
    shaped_tokenizer(folder, markers=GPT_OSS, roles=roles, chat_template=template)
    return load_tokenizer(Model(name=str(folder), context_length=4096))


def test_channels(tmp_path: Path) -> None:
    tokenizer = gpt_oss(tmp_path, TEMPLATES["openai-gpt-oss-120b"])
    structure = derive_structure(tokenizer, recipe(date="2026-01-31"))
    assert (structure.name, structure.thinking) == ("channels", MODEL)
    assert structure.end_ids == (200002, 200012)
    assert structure.close_ids == (200007,)
    assert (structure.open_ids[0], structure.open_ids[-1]) == (200005, 200008)
    assert structure.foreign_ids == ()
    assert structure.channels is not None
    assert structure.channels.next_ids == structure.tail_ids
    assert structure.tail_ids[0] == 200006
    assert [len(names) for names in (structure.channels.reasoning, structure.channels.content)] == [1, 2]
    assert Structure.from_json(structure.to_json()) == structure
    with pytest.raises(RecipeError, match=r"set model\.date"):
        derive_structure(tokenizer, recipe())


def test_a_prompt_that_names_the_channel_is_not_decided(tmp_path: Path) -> None:
    speaks = "{%- if add_generation_prompt -%}\n<|start|>assistant"
    template = TEMPLATES["openai-gpt-oss-120b"].replace(speaks, speaks + "<|channel|>final<|message|>")
    assert template != TEMPLATES["openai-gpt-oss-120b"]
    with pytest.raises(RecipeError, match="cannot be decided"):
        derive_structure(gpt_oss(tmp_path, template), recipe(date="2026-01-31"))


STRIPS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_template_that_only_strips_reasoning_proves_nothing(shaped: Shaped) -> None:
    with pytest.raises(RecipeError, match="cannot be decided"):
        derive_structure(shaped("qwen3", STRIPS), recipe())
    named = derive_structure(shaped("qwen3", STRIPS), recipe("think"))
    assert (named.thinking, named.open_ids) == (MODEL, (151667,))
    assert any("named in the recipe" in line for line in named.evidence)


SWITCHED = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.mark.parametrize(
    ("before", "behind", "kwargs", "thinking"),
    [
        # off closes a block: without it the model opens
        ("", "{% if thinking == false %}<think></think>{% endif %}", {}, MODEL),
        ("", "{% if thinking == false %}<think></think>{% endif %}", {"thinking": False}, CLOSED),
        ("", "{% if skip_thinking %}<think></think>{% endif %}", {}, MODEL),
        ("", "{% if thinking_budget == 0 %}<think></think>{% endif %}", {}, MODEL),
        # the template's own instructions show the pair
        ("Write <think> first, then </think>.", "", {}, MODEL),
        ("{% if thinking %}Write <think> first, then </think>.{% endif %}", "", {}, Thinking.NONE),
        ("{% if thinking %}Write <think> first, then </think>.{% endif %}", "", {"thinking": True}, MODEL),
        # one switch opens and closes: left alone, the model does as it likes
        ("", "{% if thinking %}<think>{% elif thinking == false %}<think></think>{% endif %}", {}, None),
        (
            "",
            "{% if thinking %}<think>{% elif thinking == false %}<think></think>{% endif %}",
            {"thinking": True},
            PROMPT,
        ),
        # on only opens: off may still reason
        ("", "{% if thinking %}<think>{% endif %}", {}, None),
    ],
)
def test_switches(shaped: Shaped, before: str, behind: str, kwargs: dict[str, Any], thinking: Thinking | None) -> None:
    template = STRIPS.replace("{% for", before + "{% for", 1).replace("{% endif %}", behind + "{% endif %}")
    tokenizer = shaped("qwen3", template)
    if thinking is None:
        with pytest.raises(RecipeError, match="cannot be decided") as caught:
            derive_structure(tokenizer, recipe(template_kwargs=kwargs))
        assert "with thinking=True it ends with" in str(caught.value.value)
    else:
        structure = derive_structure(tokenizer, recipe(template_kwargs=kwargs))
        assert (structure.name, structure.thinking, structure.open_ids) == ("think", thinking, (151667,))


def test_an_answer_without_reasoning_that_still_has_a_block(shaped: Shaped) -> None:
    template = STRIPS.replace(
        "{{ m.content.split", "{% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.content.split"
    )
    structure = derive_structure(shaped("qwen3", template), recipe())
    assert structure.thinking is MODEL
    assert "every answer opens" in structure.evidence[0]


def test_tool_markers_may_stand_in_an_answer_and_what_ends_a_call_ends_a_turn(shaped: Shaped) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}<|endoftext|>{{ m.content }}{% else %}"
        "<|im_start|>{{ m.role }}\n"
        "{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function.arguments.city }}</tool_call>"
        "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    structure = derive_structure(shaped("qwen3", template), recipe("plain"))
    assert structure.end_ids == (151643, 151644, 151645)  # the next turn's marker, a tool's result, eos
    assert not {151657, 151658} & {*structure.foreign_ids, *structure.end_ids}


def test_prose_about_reasoning_is_no_reasoning(shaped: Shaped) -> None:
    template = "You reason well; think step by step.{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    assert derive_structure(shaped("bare", template), recipe()).name == "plain"
    for hint in ("{# #}{{ reasoning_content }}", "<thoughts>", "{% if m.role == 'thinking' %}{% endif %}"):
        with pytest.raises(RecipeError, match="cannot be decided"):
            derive_structure(shaped("bare", template.replace("{{ m.content }}", "{{ m.content }}" + hint)), recipe())


def test_named_think_must_fit(shaped: Shaped) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<think>of course"
    with pytest.raises(RecipeError, match="does not have the structure the recipe names"):
        derive_structure(shaped("qwen3", template), recipe("think"))


def test_named_think_is_the_usual_pair_where_nothing_names_one(shaped: Shaped) -> None:
    tokenizer = shaped("bare", "HuggingFaceTB-SmolLM2-135M-Instruct")
    structure = derive_structure(tokenizer, recipe("think"))
    assert (structure.name, structure.thinking) == ("think", MODEL)
    assert "<think>" in tokenizer.decode(list(structure.open_ids))
    assert "neither template nor tokenizer has a pair" in structure.evidence[0]


def test_no_id_ends_a_turn(shaped: Shaped) -> None:
    tokenizer = copy.deepcopy(shaped("bare", "{% for m in messages %}{{ m.content }}\n{% endfor %}"))
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
