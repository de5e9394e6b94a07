"""What `draftmill audit` finds, on a real server: its own rows, and the same rows damaged in known ways.

    python benchmarks/audit_proof.py --url http://127.0.0.1:8102 --model smol --tokenizer FOLDER
    python benchmarks/audit_proof.py --kind vllm --url http://127.0.0.1:8101 --model smol --tokenizer FOLDER

The server answers prompts under several recipes. Its rows are audited as they are, and again

- `retokenized`: the generated ids decoded and encoded again, where that gives other ids;
- `swapped`: two neighbouring ids that differ, at a random place, exchanged;
- `one id`: one id at a random place replaced by the one that another row has there;
- `template`: the ids that the server gave under a chat template without the system prompt and with other
  markers, behind this recipe's prompt, where they differ from its own.

Found is a row whose verdict is suspicious. Behind the first choice: of the own rows the id that is the farthest, which
for greedy ones the tolerance must be above; of damaged rows the farthest of each, and of those the least.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import aiohttp
import numpy as np

from draftmill import plugins
from draftmill.arrays import Ids, ids_array
from draftmill.audit.ask import Asker
from draftmill.audit.positions import behind_first
from draftmill.audit.verdict import Asked, Verdict, audited
from draftmill.recipe import Model, Sampling
from draftmill.records import Answer, Fault, Row
from draftmill.rendering.template import Refused, render_ids
from draftmill.rendering.tokenizer import load_tokenizer

IN_FLIGHT = 8

TOPICS = (
    "the sea, with emoji",
    "a lost dog",
    "photosynthesis, for a child",
    "a Python function that reverses a string",
    "in Chinese: the four seasons",
    "in Russian: a good breakfast",
    "a JSON object describing a book",
    "the rules of chess",
    "in Arabic: a greeting",
    "na\u00efve caf\u00e9 culture",
    "in Japanese: the weather",
    "the water cycle as a list",
    "a table of planets in Markdown",
    "black holes",
    "17 times 23, step by step",
    "a limerick about a cat",
)
ASKS = ("Write about {}.", "Give three facts about {}.", "Explain {} in one paragraph.", "Write a poem on {}.")

OTHER_TEMPLATE = (
    "{% for message in messages %}### {{ message['role'] }}:\n{{ message['content'] }}\n\n{% endfor %}### assistant:\n"
)

RECIPES = {
    "greedy": {"temperature": 0.0, "top_p": 1.0},
    "T 1, top_p 0.95": {"temperature": 1.0, "top_p": 0.95},
    "T 0.6, top_p 0.95, top_k 20": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    "T 1, all": {"temperature": 1.0, "top_p": 1.0},
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A row: prompt and generated ids."""

    prompt_ids: Ids
    output_ids: Ids


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is and how it is asked."""

    url: str
    protocol: ModuleType
    http: aiohttp.ClientSession
    model: str
    asker: Asker
    room: asyncio.Semaphore

    async def answer(self, prompt_ids: Ids, sampling: Sampling) -> Ids:
        rid = f"{np.random.default_rng().integers(2**63):032x}"
        row = Row("k", 0, "p", "id", "default", 0, prompt_ids, sampling.max_new_tokens, None, "")
        body = self.protocol.payload(row, sampling, rid=rid, model=self.model)
        headers = {"Content-Type": "application/json"}
        async with self.room, self.http.post(self.url + self.protocol.GENERATE, data=body, headers=headers) as http:
            got = self.protocol.read(http.status, http.headers, await http.read(), row=row, rid=rid, engine="")
        if not isinstance(got, Answer):
            raise SystemExit(f"no answer: {got.words}")
        return got.output_ids

    async def audit(self, sample: Sample, sampling: Sampling, vocabulary: int) -> tuple[Any, float]:
        """The row's audit, and how far its worst id is behind the first choice."""
        ids_T = ids_array("ids", [*sample.prompt_ids.tolist(), *sample.output_ids.tolist()])
        start = len(sample.prompt_ids)
        async with self.room:
            scores = await self.asker.scores(self.url, ids_T, start)
        if isinstance(scores, Fault):
            raise SystemExit(f"no log-probabilities: {scores.words}")
        asked = Asked("k", "id", "default", range(start, len(ids_T)))
        return audited(asked, scores, sampling, vocabulary=vocabulary), float(behind_first(scores).max())


def damaged(tokenizer: Any, samples: list[Sample], other: list[Ids], seed: int) -> Iterator[tuple[str, Sample]]:
    dice = np.random.default_rng(seed)
    for number, sample in enumerate(samples):
        ids = sample.output_ids
        yield "own", sample
        again = tokenizer.encode(tokenizer.decode(ids, skip_special_tokens=False), add_special_tokens=False)
        if again and again != ids.tolist():
            yield "retokenized", replace(sample, output_ids=ids_array("ids", again))
        places = np.flatnonzero(ids[1:] != ids[:-1])
        if len(places):
            place, swapped = int(dice.choice(places)), ids.copy()
            swapped[[place, place + 1]] = ids[[place + 1, place]]
            yield "swapped", replace(sample, output_ids=swapped)
        foreign, replaced = samples[(number + 7) % len(samples)].output_ids, ids.copy()
        place = int(dice.integers(min(len(ids), len(foreign))))
        if foreign[place] != ids[place]:
            replaced[place] = foreign[place]
            yield "one id", replace(sample, output_ids=replaced)
        if not np.array_equal(other[number], ids):
            yield "template", replace(sample, output_ids=other[number])


async def proof(arguments: argparse.Namespace) -> None:
    model = Model(name=arguments.model, tokenizer=arguments.tokenizer, context_length=2048)
    tokenizer = load_tokenizer(model)
    prompts = [ask.format(topic) for ask in ASKS for topic in TOPICS][: arguments.rows]
    ours = [_rendered(tokenizer, prompt) for prompt in prompts]
    tokenizer.chat_template = OTHER_TEMPLATE
    others = [_rendered(tokenizer, prompt) for prompt in prompts]
    protocol = plugins.load("engines", arguments.kind)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        asker = Asker(protocol, http, arguments.model)
        server = Server(arguments.url, protocol, http, arguments.model, asker, asyncio.Semaphore(IN_FLIGHT))
        print("| recipe | rows | number | generated ids | found | behind the first choice, nats |")
        print("|---|---|---|---|---|---|", flush=True)
        for name, values in RECIPES.items():
            sampling = Sampling(**values, max_new_tokens=arguments.max_new_tokens)
            outputs = await asyncio.gather(*(server.answer(ids, sampling) for ids in ours))
            foreign = await asyncio.gather(*(server.answer(ids, sampling) for ids in others))
            samples = [Sample(*pair) for pair in zip(ours, outputs, strict=True)]
            await _report(server, name, sampling, list(damaged(tokenizer, samples, foreign, 7)), len(tokenizer))


async def _report(
    server: Server, name: str, sampling: Sampling, kinds: list[tuple[str, Sample]], vocabulary: int
) -> None:
    results = await asyncio.gather(*(server.audit(sample, sampling, vocabulary) for _, sample in kinds))
    for kind in dict.fromkeys(kind for kind, _ in kinds):
        found = [result for (each, _), result in zip(kinds, results, strict=True) if each == kind]
        suspicious = sum(audit.verdict is Verdict.SUSPICIOUS for audit, _ in found)
        undecided = sum(audit.undecided for audit, _ in found)
        positions = sum(audit.positions for audit, _ in found)
        behind = [nats for _, nats in found]
        shown = f"at most {max(behind):.4f}" if kind == "own" else f"at least {min(behind):.2f}"
        more = f" ({undecided:,} undecided)" if undecided else ""
        print(f"| {name} | {kind} | {len(found)} | {positions:,}{more} | {suspicious} | {shown} |", flush=True)


def _rendered(tokenizer: Any, prompt: str) -> Ids:
    messages = [{"role": "user", "content": prompt}]
    ids = render_ids(tokenizer, messages, None, template_kwargs={}, date=None)
    if isinstance(ids, Refused):
        raise SystemExit(ids.words)
    return ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--kind", default="sglang", help="a name of the engines shelf")
    parser.add_argument("--model", required=True, help="the name it serves")
    parser.add_argument("--tokenizer", required=True, help="its folder")
    parser.add_argument("--rows", type=int, default=len(TOPICS) * len(ASKS))
    parser.add_argument("--max-new-tokens", type=int, default=48)
    asyncio.run(proof(parser.parse_args()))


if __name__ == "__main__":
    main()
