"""Exports as the trainers' own readers see them: ids and masks must be the dataset's, id by id.

What is expected is counted here from the dataset's rows and boundaries, not by the
code that exports. `make trainers` makes the environment; last_run.json keeps when all
of this last passed, and with which versions.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from draftmill import plugins
from draftmill.errors import RecipeError
from draftmill.exporting.export import Order, export
from draftmill.exporting.masks import Mask
from draftmill.exporting.selection import Drafter, Wish
from draftmill.recipe_file import load_recipe
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, Seeded
from draftmill.serving.protocol import Limits
from tests.flows.conftest import FlowMill

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".trainers" / "bin" / "python"
LAST_RUN = Path(__file__).with_name("last_run.json")

EXPORTERS = {
    "specforge": "specforge",
    "dflash": "specforge",
    "prepared": "speculators",
    "trained": "speculators",
    "joined": "speculators",
    "huggingface": "huggingface",
}
"""Each reader of reader.py, and the exporter it reads."""

pytestmark = pytest.mark.timeout(900)
"""Importing torch and the trainers takes minutes on a busy machine."""

PARTS = ("train", "validation")

THINK, END_THINK, END_OF_TURN = 163606, 163607, 163586
"""Kimi-K2.5's."""

ROWS = 60

Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""A row's ids and its mask."""


class Job(NamedTuple):
    """One part of one export, for one reader."""

    reader: str
    mask: Mask
    part: str


@pytest.fixture(scope="module")
def passed() -> Iterator[dict[str, Any]]:
    """What was compared, by dataset; kept in last_run.json once it is both."""
    found: dict[str, Any] = {}
    yield found
    if {"demo", "kimi"} <= found.keys():
        versions = found.pop("versions")
        record = {"passed": f"{datetime.now(UTC):%Y-%m-%d}", "versions": versions, "compared": found}
        LAST_RUN.write_text(json.dumps(record, indent=1) + "\n")


async def test_a_dataset_shaped_like_kimis(
    tmp_path: Path, shaped_folder: Callable[[str, str], str], passed: dict[str, Any]
) -> None:
    """The prompt opens the reasoning, the model closes it; some rows are cut, some of those inside the reasoning."""
    mill = FlowMill(tmp_path)
    mill.prompts([f"question {n}" for n in range(ROWS)])
    mill.changes = {"model__tokenizer": shaped_folder("kimi", "moonshotai-Kimi-K2.5"), "sampling__max_new_tokens": 14}
    answers = Seeded(
        seed=3, markers=Markers(THINK, END_THINK, END_OF_TURN), ordinary=range(1000, 40000), lengths=(4, 40)
    )
    card = Card(model="SmolLM2-135M-Instruct", version="0.5.23", slots=8)
    async with FakeServer(answers, card=card, limits=Limits(4096, 163840)) as fake:
        mill.url = fake.url
        await mill.refresh()
    rows = mill.rows()
    ends = Counter((row["finish_reason"], row["reasoning_end"] is not None) for row in rows)
    assert min(ends["stop", True], ends["length", True], ends["length", False]) > 2, ends
    check("kimi", mill, tuple(Mask), passed, inside_is_reasoning=True)


async def test_the_demos_dataset(tmp_path: Path, engine_url: str, passed: dict[str, Any]) -> None:
    """The demo's recipe with its real model, which has no reasoning to learn from."""
    mill = FlowMill(tmp_path, url=engine_url)
    recipe = load_recipe(ROOT / "deployments" / "recipes" / "demo.yaml").model_dump(mode="json")
    prompts = recipe["prompts"] | {"path": str(ROOT / "examples" / "prompts.jsonl"), "limit": 24}
    await mill.refresh(**{**recipe, "dataset": mill.dataset, "prompts": prompts, "engine__urls": [engine_url]})
    assert len(mill.rows()) > 12
    check("demo", mill, (Mask.COMPLETION, Mask.CONTENT), passed, inside_is_reasoning=False)
    with pytest.raises(RecipeError, match="nothing to export"):
        export([mill.dataset], str(tmp_path / "none"), to="specforge", wish=Wish(Mask.REASONING))


def check(
    name: str, mill: FlowMill, masks: tuple[Mask, ...], passed: dict[str, Any], *, inside_is_reasoning: bool
) -> None:
    jobs = [Job(reader, mask, part) for reader in EXPORTERS for mask in masks for part in PARTS]
    folders = {(job.reader, job.mask): mill.folder / f"{job.reader}-{job.mask}" for job in jobs}
    for (reader, mask), folder in folders.items():
        drafter = Drafter.DFLASH if reader == "dflash" else Drafter.EAGLE3
        wish = Wish(mask, drafter=drafter)
        export([mill.dataset], str(folder), to=EXPORTERS[reader], wish=wish, order=Order(split=0.3))
        (folder / "docs.py").write_text(documented_code())
    result = asked(mill.folder, [(job.reader, str(folders[job.reader, job.mask]), job.part) for job in jobs])
    seen: dict[tuple[str, Mask], Counter[Pair]] = {place: Counter() for place in folders}
    for job, read in zip(jobs, result["read"], strict=True):
        found = [(tuple(ids), tuple(map(int, mask_T))) for ids, mask_T in read["rows"]]
        assert found == ours(folders[job.reader, job.mask], job), job
        assert found, job
        if read["frequencies"] is not None:
            supervised = Counter(index for row in found for index in under_mask(row))
            assert {int(index): number for index, number in read["frequencies"].items()} == supervised, job
        seen[job.reader, job.mask].update(found)
    for (reader, mask), found_pairs in seen.items():
        wanted = expected(mill.rows(), mask, pairs_only=reader == "dflash", inside_is_reasoning=inside_is_reasoning)
        assert found_pairs == wanted, (reader, mask)
    passed["versions"] = result["versions"]
    passed[name] = {mask.value: summary({r: seen[r, mask] for r in EXPORTERS}) for mask in masks}


def documented_code() -> str:
    """How docs/trainers.md joins the parts for speculators."""
    text = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "concatenate" in block)
    return str(code)


def asked(folder: Path, jobs: list[tuple[str, str, str]]) -> dict[str, Any]:
    """What the readers say, in one process of theirs."""
    files = [folder / "jobs.json", folder / "result.json"]
    files[0].write_text(json.dumps(jobs))
    assert PYTHON.exists(), "run it as `make trainers`, which installs the trainers' packages"
    done = subprocess.run([PYTHON, Path(__file__).with_name("reader.py"), *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(files[1].read_text())
    return result


def ours(folder: Path, job: Job) -> list[Pair]:
    """The part as the export's own check read it, in order."""
    read = plugins.load("exporters", EXPORTERS[job.reader]).read(DirFileSystem(str(folder)), job.part)
    return [(tuple(ids_T.tolist()), tuple(mask_T.tolist())) for ids_T, mask_T in read]


def under_mask(row: Pair) -> list[int]:
    return [index for index, bit in zip(*row, strict=True) if bit]


def expected(rows: list[dict[str, Any]], mask: Mask, *, pairs_only: bool, inside_is_reasoning: bool) -> Counter[Pair]:
    """Ids and mask of each row that has something to learn, from its boundaries in the dataset."""
    found: Counter[Pair] = Counter()
    for row in rows:
        (span,) = row["spans"]
        if row["reasoning_end"] is not None:
            boundary = row["reasoning_end"] + 1
        else:
            inside = inside_is_reasoning and row["finish_reason"] == "length"
            boundary = span["end"] if inside else span["start"]
        begin = boundary if mask is Mask.CONTENT else span["start"]
        end = boundary if mask is Mask.REASONING else span["end"]
        if end - begin >= (2 if pairs_only else 1):
            places = np.arange(len(row["input_ids"]))
            bits = ((begin <= places) & (places < end)).astype(int).tolist()
            found[tuple(row["input_ids"]), tuple(bits)] += 1
    return found


def summary(seen: dict[str, Counter[Pair]]) -> dict[str, str]:
    supervised = {reader: sum(len(under_mask(row)) for row in pairs.elements()) for reader, pairs in seen.items()}
    return {reader: f"{pairs.total()} rows, {supervised[reader]} supervised ids" for reader, pairs in seen.items()}
