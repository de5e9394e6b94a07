"""Load: prompt files in, slices of canonical prompts and the list of rejected rows out."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from draftmill.dataset.rejected import rejections_table
from draftmill.progress import listener
from draftmill.prompts.load import Loaded, load_prompts, source_digest
from draftmill.recipe import Recipe
from draftmill.workspace import workspace
from tasks.receipts import Receipt, result, stage

SLICES_AT_MOST = 100
"""Slices of a source; each is a task run of `tokenize`."""

SLICE_ROWS_AT_LEAST = 2_000
"""Prompts: below that a task run costs more than its slice."""


async def load(recipe: Recipe) -> Receipt:
    """`{slices: [reference], rejected: reference or None, prompts, num_rejected, files}`."""
    listener().stage("reading prompts")
    return await result(load_prompt_files, recipe, await asyncio.to_thread(source_digest, recipe.prompts))


@stage(
    name="load",
    run_name="load prompts",
    version=2,
    key=lambda p: p["source"],
    gives={"slices", "rejected", "prompts", "num_rejected", "files"},
)
async def load_prompt_files(recipe: Recipe, source: str) -> Receipt:
    """The task. `source`: digest of the files and of the fields of `prompts`."""
    loaded = await asyncio.to_thread(load_prompts, recipe.prompts)
    return await asyncio.to_thread(_store, loaded)


def _store(loaded: Loaded) -> Receipt:
    storage = workspace().storage
    num_rows = loaded.table.num_rows
    slice_rows = max(SLICE_ROWS_AT_LEAST, -(-num_rows // SLICES_AT_MOST))
    slices: list[dict[str, Any]] = [
        storage.put_table("prompts", loaded.table.slice(start, slice_rows)).model_dump()
        for start in range(0, num_rows, slice_rows)
    ]
    rejected = None
    if loaded.rejected:
        rejected = storage.put_table("prompts", rejections_table(loaded.rejected)).model_dump()
    return {
        "slices": slices,
        "rejected": rejected,
        "prompts": num_rows,
        "num_rejected": len(loaded.rejected),
        "files": [asdict(file) for file in loaded.files],
    }
