"""The form in which templates take tool calls, of made-up templates and of real ones."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from draftmill.recipe import Model
from draftmill.rendering.call_form import CallForm, call_form, has_calls, in_form
from draftmill.rendering.template import render_ids
from draftmill.rendering.tokenizer import load_tokenizer
from tests.conftest import chat_template

HEAD = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
TAIL = "{% endfor %};{% endfor %}"
ARGUMENTS = "c.function.arguments"


def form(template: str) -> CallForm:
    tokenizer = load_tokenizer(Model(name="m", tokenizer="embedded", context_length=4096))
    tokenizer.chat_template = template
    day = dt.date(2026, 1, 31)
    return call_form(lambda messages, tools: render_ids(tokenizer, messages, tools, template_kwargs={}, date=day))


@pytest.mark.parametrize(
    ("prints", "wanted"),
    [
        (f"{{{{ {ARGUMENTS} | tojson }}}}", CallForm.OBJECT),
        (f"{{% for k, v in {ARGUMENTS}.items() %}}{{{{ k }}}}={{{{ v }}}}{{% endfor %}}", CallForm.OBJECT),
        (f"{{{{ {ARGUMENTS} if {ARGUMENTS} is string else {ARGUMENTS} | tojson }}}}", CallForm.OBJECT),
        (f"{{{{ 'call ' + {ARGUMENTS} }}}}", CallForm.TEXT),
        (f"{{{{ {ARGUMENTS} }}}}", CallForm.TEXT),  # an object would be printed as Python writes it
        ("a call", CallForm.NOT_PRINTED),
        ("{{ raise_exception('no calls here') }}", CallForm.OBJECT),
    ],
)
def test_the_form_is_what_the_template_prints(prints, wanted):
    assert form(HEAD + prints + TAIL) is wanted


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("Qwen-Qwen2.5-7B-Instruct", CallForm.OBJECT),
        ("mistralai-Mistral-7B-Instruct-v0.3", CallForm.OBJECT),
        ("deepseek-ai-DeepSeek-V3.2", CallForm.OBJECT),
        ("trl-internal-testing-tiny-DeepseekV3ForCausalLM-0528", CallForm.TEXT),
        ("ServiceNow-AI-Apriel-1.6-15b-Thinker", CallForm.TEXT),
        ("deepseek-ai-DeepSeek-V2.5", CallForm.NOT_PRINTED),
    ],
)
def test_real_templates(template, wanted):
    assert form(chat_template(template)) is wanted


def test_text_is_json_and_everything_else_stays():
    function = {"name": "f", "arguments": {"z": "Sölden", "a": None}}
    calls: list[dict[str, Any]] = [{"id": "1", "type": "function", "function": function}, function]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": calls}]
    before = json.dumps(messages)
    assert has_calls(messages)
    assert not has_calls(messages[:1])
    text = in_form(messages, CallForm.TEXT)
    written = '{"z": "Sölden", "a": null}'
    assert text[1]["tool_calls"] == [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": written}},
        {"name": "f", "arguments": written},
    ]
    assert text[0] == messages[0]
    assert in_form(messages, CallForm.OBJECT) == messages
    assert json.dumps(messages) == before
