"""A scenario's prompts, once as text for `draftmill run` and once as ids for those who only send ids.

The ids are rendered by draftmill itself, so that all contestants send the same
bodies; short prompts, since a long one costs all of them the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from benchmarks.scenario import CONTEXT, MODEL, Scenario
from draftmill.dataset.schema import table_rows
from draftmill.prompts.load import load_prompts
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.render import render_prompts

UNREACHABLE = "http://127.0.0.1:9"
"""Stands in a recipe until the fake's URL is known."""


def recipe_of(scenario: Scenario, *, prompts: Path, dataset: Path, url: str = UNREACHABLE) -> dict[str, Any]:
    """The recipe of a scenario, as all contestants have it; what is not named is the default."""
    return {
        "dataset": str(dataset),
        "prompts": {"path": str(prompts)},
        "model": {"name": MODEL, "tokenizer": "embedded", "context_length": CONTEXT},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": scenario.max_new_tokens},
        "engine": {"urls": [url], "in_flight": scenario.in_flight},
    }


def write_prompts(scenario: Scenario, folder: Path) -> tuple[Path, Path]:
    """`(prompts.jsonl, ids.json)`: the texts, and for each `[prompt ids, max_new_tokens]` in the same order."""
    texts, ids = folder / "prompts.jsonl", folder / "ids.json"
    lines = [{"id": str(n), "prompt": f"Write the number {n} in words."} for n in range(scenario.rows)]
    texts.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    recipe = parse_recipe(recipe_of(scenario, prompts=texts, dataset=folder / "unused"), origin="the benchmark")
    rows = table_rows(render_prompts(load_prompts(recipe.prompts).table, recipe).rows)
    assert len(rows) == scenario.rows, "every prompt becomes a row"
    ids.write_bytes(orjson.dumps([[row.prompt_ids.tolist(), row.max_new_tokens] for row in rows]))
    return texts, ids
