"""What real templates make of earlier turns, decided on ids, and what stands between two turns where they stay."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.judging.derive import derive_structure, inspect
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import HistoryMode
from draftmill.rendering.conversation import Conversation
from draftmill.rendering.history import History, between, history_mode
from draftmill.rendering.template import Refused, render_ids

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ONE_TURN_ONLY = (
    "{% if messages|length > 1 %}{{ raise_exception('one turn only') }}{% endif %}"
    "<|im_start|>{{ messages[0].content }}<|im_end|><|im_start|>assistant\n"
)
MESSAGES = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "recorded"},
    {"role": "user", "content": "second"},
]


def recipe(tokenizer: Any, **kwargs: Any) -> Recipe:
    data = {
        "dataset": "unused",
        "prompts": {"path": "unused", "turns": "all"},
        "model": {"name": tokenizer.name_or_path, "context_length": 4096, "template_kwargs": kwargs},
        "sampling": {"temperature": 1, "top_p": 1, "max_new_tokens": 32},
    }
    return parse_recipe(data, origin="the test")


def mode_of(tokenizer: Any, **kwargs: Any) -> History:
    derived = derive_structure(tokenizer, recipe(tokenizer, **kwargs))
    return history_mode(tokenizer, derived, template_kwargs=kwargs)


@pytest.mark.parametrize(
    ("shape", "template", "kwargs", "mode", "words"),
    [
        # Kimi's thinks, and drops it from history; told not to think, history keeps the closed block.
        ("kimi", "moonshotai-Kimi-K2.5", {}, "rewrites", "the earlier reasoning is left out"),
        ("kimi", "moonshotai-Kimi-K2.5", {"thinking": False}, "extends", "content of earlier turns stay"),
        # Qwen3's hybrid drops it; without thinking, the closed block stands in the last prompt only.
        ("qwen3", "Qwen-Qwen3-0.6B", {}, "rewrites", "the earlier reasoning is left out"),
        ("qwen3", "Qwen-Qwen3-0.6B", {"enable_thinking": False}, "rewrites", "was 151667 and is"),
        ("qwen3", "Qwen-Qwen3-4B-Thinking-2507", {}, "rewrites", "was 151667 and is"),
        # One template, two ways, by its own variable.
        ("qwen3", "Qwen-Qwen3.6-35B-A3B", {}, "rewrites", "was 151667 and is"),
        ("qwen3", "Qwen-Qwen3.6-35B-A3B", {"preserve_thinking": True}, "extends", "reasoning and content"),
        ("glm", "GLM-4.7-Flash", {}, "rewrites", "is (151351,)"),
        ("glm", "GLM-4.7-Flash", {"clear_thinking": False}, "extends", "reasoning and content"),
        ("bare", CHATML, {}, "extends", "content of earlier turns stay"),
        ("bare", ONE_TURN_ONLY, {}, "rewrites", "one turn only"),
    ],
)
def test_real_templates(shaped: Any, shape: str, template: str, kwargs: Any, mode: str, words: str) -> None:
    history = mode_of(shaped(shape, template), **kwargs)
    assert (history.mode, words in history.evidence) == (HistoryMode(mode), True), history.evidence


def test_inspect_says_it(shaped: Any) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    evidence = inspect(tokenizer, recipe(tokenizer))["evidence"]
    assert evidence[-1] == "turns: all: a later prompt rewrites earlier turns: the earlier reasoning is left out"


@pytest.mark.parametrize(
    ("shape", "template", "kwargs"),
    [
        ("bare", CHATML, {}),
        ("kimi", "moonshotai-Kimi-K2.5", {"thinking": False}),
        ("qwen3", "Qwen-Qwen3.6-35B-A3B", {"preserve_thinking": True}),
    ],
)
def test_between_is_what_the_template_writes_there(
    shaped: Any, shape: str, template: str, kwargs: dict[str, Any]
) -> None:
    """A whole conversation rendered with an answer equals prompt, answer, end and what stands between, joined."""
    tokenizer = shaped(shape, template)
    derived = derive_structure(tokenizer, recipe(tokenizer, **kwargs))
    history = history_mode(tokenizer, derived, template_kwargs=kwargs)

    def render(messages: Any) -> Any:
        return render_ids(tokenizer, messages, None, template_kwargs=kwargs, date=None)

    conversation = Conversation.of(MESSAGES, None)
    found = between(conversation, 1, history, derived.end_ids, render)
    assert not isinstance(found, Refused)
    end_id, added = found
    answer = {"role": "assistant", "content": "an answer of some words", "reasoning_content": "thought about it"}
    whole = render(conversation.asked(1, [answer])).tolist()
    first = render(conversation.asked(0, [])).tolist()
    assert whole[: len(first)] == first
    assert end_id in derived.end_ids
    assert [end_id, *added.tolist()] == whole[len(whole) - len(added) - 1 :]
    assert end_id not in whole[len(first) : len(whole) - len(added) - 1]


def between_of(tokenizer: Any, messages: list[dict[str, Any]], **kwargs: Any) -> tuple[int, Any] | Refused:
    derived = derive_structure(tokenizer, recipe(tokenizer, **kwargs))
    history = history_mode(tokenizer, derived, template_kwargs=kwargs)
    assert history.mode is HistoryMode.EXTENDS

    def render(asked: Any) -> Any:
        return render_ids(tokenizer, asked, None, template_kwargs=kwargs, date=None)

    return between(Conversation.of(messages, None), 1, history, derived.end_ids, render)


def test_a_message_where_an_answer_should_end_is_never_lost(shaped: Any) -> None:
    """GLM ends a turn with the next one's marker: mostly `<|user|>`, but `<|system|>` before a system message."""
    tokenizer = shaped("glm", "GLM-4.6")
    system = {"role": "system", "content": "from now on in French"}
    assert not isinstance(between_of(tokenizer, MESSAGES, enable_thinking=False), Refused)
    behind_the_user = between_of(tokenizer, [*MESSAGES, system], enable_thinking=False)
    assert not isinstance(behind_the_user, Refused)
    assert "in French" in tokenizer.decode(behind_the_user[1])
    refused = between_of(tokenizer, [*MESSAGES[:2], system, MESSAGES[2]], enable_thinking=False)
    assert isinstance(refused, Refused)
    assert "where a generated turn goes on or ends" in refused.words


def test_a_turn_written_otherwise_in_one_conversation_is_refused(shaped: Any) -> None:
    noted = "{% if m.role == 'assistant' and 'note' in messages[-1].content %}x {% endif %}"
    template = CHATML.replace("{{ m.content }}", f"{noted}{{{{ m.content }}}}")
    tokenizer = shaped("bare", template)
    assert not isinstance(between_of(tokenizer, MESSAGES), Refused)
    assert isinstance(between_of(tokenizer, [*MESSAGES[:2], {"role": "user", "content": "a note"}]), Refused)


@pytest.mark.parametrize(
    ("assistant", "mode", "words"),
    [
        # White space before the end is the model's to write, as in Llama 2's template.
        ("{{ m.content }} <|im_end|>", "extends", "content of earlier turns stay"),
        ("{{ m.content }}[over]<|im_end|>", "rewrites", "other ids stand between the earlier content and the end"),
        ("{{ m.content }}<|im_end|>({{ m.content }})", "rewrites", "stands in several places"),
        # The next turn's marker ends it, as with GLM.
        ("{{ m.content }}", "extends", "content of earlier turns stay"),
    ],
)
def test_a_turn_ends_behind_its_content(shaped: Any, assistant: str, mode: str, words: str) -> None:
    user = "{% if m.role == 'user' %}<|im_start|>user\n{{ m.content }}<|im_end|>\n{% else %}"
    template = CHATML.replace(
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n",
        f"{user}<|im_start|>assistant\n{assistant}\n{{% endif %}}",
    )
    tokenizer = shaped("bare", template)
    history = mode_of(tokenizer)
    assert (history.mode, words in history.evidence) == (HistoryMode(mode), True), history.evidence
