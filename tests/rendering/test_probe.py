"""Probes: places found by comparing ids, white space, history, dates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerBase

from draftmill.errors import RecipeError
from draftmill.rendering.probe import blank_ids, probe_template

Shaped = Callable[[str, str], PreTrainedTokenizerBase]

KIMI = "moonshotai-Kimi-K2.5"


def test_kimi(shaped: Shaped) -> None:
    probe = probe_template(shaped("kimi", KIMI), template_kwargs={}, end_ids=[5])
    assert probe.prompt_ids[-1] == 163606
    assert probe.text(probe.tail_ids) == "<|im_assistant|>assistant<|im_middle|><think>"
    assert probe.turns.end_ids == (163586,)
    assert probe.turns.around - {163606, 163607} == {163587, 163588, 163594, 163601}
    # The template writes reasoning only in a turn that calls tools; the prompt has opened it.
    assert probe.text(probe.turns.reasoned).startswith("7</think><|tool_calls_section_begin|>")
    assert (probe.bos_id, probe.eos_id, probe.end_ids) == (163584, 163585, (5,))
    assert probe.forms_of("<think>") == ((163606,),)
    assert len(probe.ids_of("<nothing>")) > 1
    assert not probe.evidence


def test_blank_ids_are_white_space_and_nothing_else(shaped: Shaped) -> None:
    tokenizer = shaped("kimi", KIMI)
    blank = set(blank_ids(tokenizer))
    for text in (" ", "\n", "\n\n", "\t", "    "):
        assert set(tokenizer.encode(text, add_special_tokens=False)) <= blank
    for text in ("a", "7", ".", "\u4f60", "</think>"):
        assert not set(tokenizer.encode(text, add_special_tokens=False)) & blank


def test_a_template_without_generation_prompt_shows_what_is_behind_the_user(shaped: Shaped) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>\n{% endfor %}"
    probe = probe_template(shaped("bare", template), template_kwargs={})
    assert probe.text(probe.tail_ids) == "<|im_end|>\n"


@pytest.mark.parametrize(
    ("shape", "template", "keeps"),
    [
        ("kimi", KIMI, False),
        ("qwen3", "Qwen-Qwen3-0.6B", False),
        ("kimi", "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}<|im_end|>{% endfor %}", True),
        ("bare", "HuggingFaceTB-SmolLM2-135M-Instruct", True),  # inline reasoning is content to it
    ],
)
def test_history(shaped: Shaped, shape: str, template: str, keeps: bool) -> None:
    assert probe_template(shaped(shape, template), template_kwargs={}).keeps_reasoning("<think>", "</think>") is keeps


def test_content_the_template_does_not_print_has_nothing_behind_it(shaped: Shaped) -> None:
    template = "{% for m in messages %}<|im_start|>{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    assert probe_template(shaped("bare", template), template_kwargs={}).turns.end_ids == ()


def test_what_a_template_does_not_take_is_evidence(shaped: Shaped) -> None:
    template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    probe = probe_template(shaped("bare", template + "{{ m.content }}<|im_end|>{% endfor %}"), template_kwargs={})
    assert "the template does not take the roles [system user]: no system" in probe.evidence


def test_a_template_that_takes_no_user_message_is_refused(shaped: Shaped) -> None:
    for template, words in (("{{ raise_exception('only documents') }}", "only documents"), ("{{ '' }}", "nothing")):
        with pytest.raises(RecipeError, match="does not take a user message") as caught:
            probe_template(shaped("bare", template), template_kwargs={})
        assert words in str(caught.value.value)


def test_a_template_that_takes_parts_only_is_told_so(shaped: Shaped) -> None:
    template = "{% for m in messages %}{% for part in m.content %}{{ part['text'] | trim }}{% endfor %}{% endfor %}"
    with pytest.raises(RecipeError, match="does not take a user message") as caught:
        probe_template(shaped("bare", template), template_kwargs={})
    assert "list of parts only" in caught.value.remedy
    with pytest.raises(RecipeError) as caught:
        probe_template(shaped("bare", "{{ raise_exception('no') }}"), template_kwargs={})
    assert "parts" not in caught.value.remedy


@pytest.mark.parametrize(
    ("template", "depends"),
    [
        ("{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}", True),
        # only in a system turn; only where nobody looks; never called
        (
            "{% for m in messages %}{% if m.role == 'system' %}{{ strftime_now('%d') }}{% endif %}"
            "{{ m.content }}{% endfor %}",
            True,
        ),
        # with tools only, further on only
        ("{% if tools %}{{ strftime_now('%d') }}{% endif %}{{ messages[0].content }}", True),
        (
            "{% if tools and messages[0].role == 'system' %}{{ strftime_now('%d') }}{% endif %}"
            "{{ messages[0].content }}",
            True,
        ),
        ("{% if messages|length > 2 %}{{ strftime_now('%d') }}{% endif %}{{ messages[0].content }}", True),
        ("{% if messages|length > 9 %}{{ strftime_now('%d') }}{% endif %}{{ messages[0].content }}", False),
        ("{# strftime_now #}{{ messages[0].content }}", False),
        # another clock: there is none, so it prints nothing or the template refuses
        ("{{ datetime }}{{ messages[0].content }}", False),
    ],
)
def test_the_day(shaped: Shaped, template: str, depends: bool) -> None:
    assert probe_template(shaped("bare", template), template_kwargs={}).depends_on_date is depends


def test_switches_are_the_variables_that_speak_of_thinking(shaped: Shaped) -> None:
    template = (
        "{% if thinking_mode == 'fast' %}<|im_end|>{% endif %}{% if enable_thinking %}x{% endif %}"
        "{% set reasoning = 1 %}{{ other }}{{ messages[0].content }}"
    )
    probe = probe_template(shaped("bare", template), template_kwargs={})
    assert [str(switch) for switch in probe.switches] == [
        "enable_thinking=False",
        "enable_thinking=True",
        "thinking_mode='fast'",
    ]
    assert [switch.prompt_ids == probe.prompt_ids for switch in probe.switches] == [True, False, False]
