"""Families that `renderers` knows, each on a bench: our structure and its parser side by side.

Decoding is for the comparison only: `renderers` answers with text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import renderers
from renderers import configs
from renderers.parsing import parse_gpt_oss

from draftmill.judging.derive import derive_structure
from draftmill.judging.structure import Structure
from draftmill.records import Thinking, Verdict
from draftmill.rendering.template import render_ids
from tests.judging import families

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Text = str | Sequence[str]
"""A text; or pieces tokenized one by one, so that a marker can be spelled with ordinary ids."""


class Parts(NamedTuple):
    """`reasoning`: None where the answer has none."""

    reasoning: str | None
    content: str


# What is left of (reasoning, content) behind a parser of `renderers`.
KEPT: dict[str, Callable[[Parts], Parts]] = {
    "strips both": lambda parts: Parts((parts.reasoning or "").strip(), parts.content.strip()),
    "strips the reasoning's end": lambda parts: Parts((parts.reasoning or "").rstrip(), parts.content),
    "strips line breaks": lambda parts: Parts((parts.reasoning or "").strip("\n"), parts.content.strip("\n")),
}

TOOL_CALL = ("<tool_call>", "</tool_call>")
KIMI_TOOLS = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
DEEPSEEK_TOOLS = ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>")
DSML_TOOLS = (
    '<\uff5cDSML\uff5ctool_calls>\n<\uff5cDSML\uff5cinvoke name="f">',
    "</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5ctool_calls>",
)


@dataclass(frozen=True, slots=True)
class Family:
    """`config`: of `renderers`; None for gpt-oss, whose renderer downloads its vocabulary but whose parser does not.

    `lead`: what always stands behind the opening marker. `structure`: as a recipe
    names it where the template does not show it.
    """

    name: str
    shape: str
    template: str
    config: Any
    kwargs: dict[str, Any]
    kept: str
    tool: tuple[str, str]
    lead: str
    structure: str


def family(
    name: str,
    shape: str,
    template: str,
    config: Any,
    *,
    tool: tuple[str, str] = TOOL_CALL,
    kept: str = "strips both",
    lead: str = "",
    structure: str = "auto",
    **kwargs: Any,
) -> Family:
    return Family(name, shape, template, config, kwargs, kept, tool, lead, structure)


FAMILIES = [
    family("qwen3", "qwen3", "Qwen-Qwen3-0.6B", configs.Qwen3RendererConfig()),
    family(
        "qwen3 off",
        "qwen3",
        "Qwen-Qwen3-0.6B",
        configs.Qwen3RendererConfig(enable_thinking=False),
        enable_thinking=False,
    ),
    family("qwen3 thinking 2507", "qwen3", "Qwen-Qwen3-4B-Thinking-2507", configs.Qwen3RendererConfig()),
    family("qwen3-vl thinking", "qwen3", "Qwen-Qwen3-VL-8B-Thinking", configs.Qwen3VLRendererConfig()),
    family("prime qwen3", "qwen3", "PrimeIntellect-Qwen3-0.6B", configs.PrimeQwen3RendererConfig(), structure="think"),
    family("qwen3.5", "qwen3.5", "Qwen3.5-4B", configs.Qwen35RendererConfig(enable_thinking=True)),
    family(
        "qwen3.5 off",
        "qwen3.5",
        "Qwen3.5-4B",
        configs.Qwen35RendererConfig(enable_thinking=False),
        enable_thinking=False,
    ),
    family("qwen3.6", "qwen3.5", "Qwen-Qwen3.6-35B-A3B", configs.Qwen36RendererConfig(enable_thinking=True)),
    family("kimi k2.5", "kimi", "moonshotai-Kimi-K2.5", configs.KimiK25RendererConfig(), tool=KIMI_TOOLS),
    family(
        "kimi k2.5 off",
        "kimi",
        "moonshotai-Kimi-K2.5",
        configs.KimiK25RendererConfig(thinking=False),
        tool=KIMI_TOOLS,
        thinking=False,
    ),
    family("kimi k2.6", "kimi", "moonshotai-Kimi-K2.6", configs.KimiK25RendererConfig(), tool=KIMI_TOOLS),
    family("kimi k2 thinking", "kimi", "moonshotai-Kimi-K2-Thinking", configs.KimiK2RendererConfig(), tool=KIMI_TOOLS),
    family("deepseek r1", "deepseek", "llama-cpp-deepseek-r1", configs.DeepSeekR1RendererConfig(), tool=DEEPSEEK_TOOLS),
    family(
        "deepseek v3.1",
        "deepseek",
        "deepseek-ai-DeepSeek-V3.1",
        configs.DeepSeekV3RendererConfig(),
        tool=DEEPSEEK_TOOLS,
        thinking=True,
    ),
    family(
        "deepseek v4",
        families.REAL,
        "deepseek-ai-DeepSeek-V4",
        configs.DeepSeekV4RendererConfig(),
        tool=DSML_TOOLS,
        kept="strips the reasoning's end",
        thinking=True,
    ),
    family(
        "deepseek v4 off",
        families.REAL,
        "deepseek-ai-DeepSeek-V4",
        configs.DeepSeekV4RendererConfig(),
        tool=DSML_TOOLS,
        kept="strips the reasoning's end",
    ),
    family(
        "glm 4.5",
        "glm4.5",
        "zai-org-GLM-4.5-Air",
        configs.GLM45RendererConfig(),
        kept="strips the reasoning's end",
    ),
    family(
        "glm 4.5 off",
        "glm4.5",
        "zai-org-GLM-4.5-Air",
        configs.GLM45RendererConfig(enable_thinking=False),
        kept="strips the reasoning's end",
        enable_thinking=False,
    ),
    family("glm 5", "glm5", "zai-org-GLM-5", configs.GLM5RendererConfig(), kept="strips the reasoning's end"),
    family("glm 5.1", "glm5", "zai-org-GLM-5.1", configs.GLM51RendererConfig(), kept="strips the reasoning's end"),
    family(
        "minimax m2",
        "minimax-m2",
        "MiniMaxAI-MiniMax-M2.5",
        configs.MiniMaxM2RendererConfig(),
        tool=("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    family("nemotron 3", "nemotron3", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", configs.Nemotron3RendererConfig()),
    family(
        "nemotron 3 off",
        "nemotron3",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        configs.Nemotron3RendererConfig(enable_thinking=False),
        enable_thinking=False,
    ),
    family(
        "laguna xs.2",
        "laguna",
        "poolside-Laguna-XS.2",
        configs.LagunaXS2RendererConfig(enable_thinking=True),
        kept="strips line breaks",
        enable_thinking=True,
    ),
    family(
        "hy3",
        "hy3",
        "tencent-Hy3",
        configs.Hy3RendererConfig(reasoning_effort="high"),
        tool=("<tool_calls:opensource>", "</tool_calls:opensource>"),
        reasoning_effort="high",
    ),
    family(
        "gemma 4",
        "gemma4",
        "google-gemma-4-31B-it",
        configs.Gemma4RendererConfig(enable_thinking=True),
        tool=("<|tool_call>", "<tool_call|>"),
        lead="\n",
        enable_thinking=True,
    ),
    family("gpt-oss", "gpt-oss", "openai-gpt-oss-120b", None, tool=("<|call|>", "<|call|>")),
]


class Bench:
    """One family: tokenizer, structure, prompt, and both parsers."""

    def __init__(self, item: Family) -> None:
        self.item = item
        self.tokenizer: PreTrainedTokenizerBase = families.tokenizer(item.shape, item.template)
        recipe = families.recipe(structure=item.structure, template_kwargs=item.kwargs)
        self.structure = derive_structure(self.tokenizer, recipe)
        ask = [{"role": "user", "content": "a"}]
        prompt: Any = render_ids(self.tokenizer, ask, None, template_kwargs=item.kwargs, date=families.DAY)
        self.prompt: list[int] = prompt.tolist()

    def ids(self, text: Text) -> list[int]:
        pieces = [text] if isinstance(text, str) else text
        return [i for piece in pieces for i in self.tokenizer.encode(piece, add_special_tokens=False)]

    def text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def answer(self, reasoning: Text, content: Text) -> list[int]:
        """A well-formed answer."""
        structure, thinking = self.structure, self.structure.thinking
        out = list(structure.open_ids) if thinking is Thinking.OPENED_BY_MODEL else []
        if thinking is not Thinking.CLOSED_BY_PROMPT:
            out += [*self.ids(self.item.lead), *self.ids(reasoning), *structure.close_ids]
        return [*out, *self.header(), *self.ids(content), self.end()]

    def header(self) -> list[int]:
        """What stands in front of the content, where it is a message of its own."""
        channels = self.structure.channels
        if channels is None or not channels.content:
            return []
        return [*channels.next_ids, channels.channel_id, *channels.content[0], channels.message_id]

    def end(self) -> int:
        """An id that ends the turn for both parsers."""
        known = self.structure.end_ids if self.item.config is None else self.renderer().get_stop_token_ids()
        return next(i for i in known if i in self.structure.end_ids)

    def renderer(self) -> Any:
        return renderers.create_renderer(self.tokenizer, self.item.config)

    def ours(self, out: Sequence[int], verdict: Verdict) -> Parts:
        """The split that the verdict's `reasoning_end` gives, decoded; of a tool call only what stands before it."""
        ends = [at for at, i in enumerate(out) if i in self.structure.end_ids]
        body = list(out[: ends[0]]) if ends else list(out)
        if verdict.reasoning_end is None:
            return Parts(None, self.text(self._before_tool(body)))
        last = verdict.reasoning_end - len(self.prompt)
        first = len(self.structure.open_ids) if self.structure.thinking is Thinking.OPENED_BY_MODEL else 0
        reasoning = body[first : last + 1 - len(_close_at(self.structure, body, last))]
        content = body[last + 1 + len(self.header()) :]
        return Parts(self.text(reasoning), self.text(self._before_tool(content)))

    def _before_tool(self, ids: list[int]) -> list[int]:
        opening = self.ids(self.item.tool[0])
        places = [at for at in range(len(ids)) if ids[at : at + len(opening)] == opening]
        return ids[: places[0]] if places else ids

    def theirs(self, out: Sequence[int]) -> Parts:
        if self.item.config is None:
            parsed = self._harmony(out)
        else:
            parsed = self.renderer().parse_response(list(out), prompt_ids=self.prompt)
        return Parts(parsed.reasoning_content, parsed.content)

    def _harmony(self, out: Sequence[int]) -> Any:
        names = {"start": "<|start|>", "end": "<|end|>", "channel": "<|channel|>", "message": "<|message|>"}
        names |= {"return": "<|return|>", "call": "<|call|>", "constrain": "<|constrain|>"}
        known = {f"{name}_id": self.tokenizer.convert_tokens_to_ids(text) for name, text in names.items()}
        return parse_gpt_oss(self.tokenizer, [*self.structure.tail_ids, *out], **known)


def _close_at(structure: Structure, ids: Sequence[int], last: int) -> tuple[int, ...]:
    """The form of the closing marker whose last id stands at `last`."""
    return next(form for form in structure.closes if tuple(ids[last + 1 - len(form) : last + 1]) == form)


@functools.cache
def bench_of(name: str) -> Bench:
    """The bench of a family of FAMILIES; made once."""
    return Bench(next(item for item in FAMILIES if item.name == name))
