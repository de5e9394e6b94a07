"""Load: prompt files in, slices of canonical prompts and the rejected rows out, each written as it fills."""

from __future__ import annotations

from typing import Any

from draftmill.errors import SourceError
from draftmill.progress import listener
from draftmill.prompts.apart import check_apart
from draftmill.prompts.digest import source_digest
from draftmill.prompts.found import Found, found_lines
from draftmill.prompts.load import Rejected, Slice, stream_prompts
from draftmill.recipe import Prompts, Recipe
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, result, stage


async def load(recipe: Recipe) -> Receipt:
    """`{slices: [reference], rejected: [reference], prompts, num_rejected, found}`; says what the source is."""
    listener().stage("reading prompts")
    await in_thread(check_apart, recipe.prompts, recipe.dataset)
    receipt = await result(load_prompt_files, recipe, await in_thread(source_digest, recipe.prompts))
    for line in found_lines(receipt["found"]):
        listener().stage(line)
    return receipt


@stage(
    name="load",
    run_name="load prompts",
    version=4,
    key=lambda p: p["source"],
    gives={"slices", "rejected", "prompts", "num_rejected", "found"},
)
async def load_prompt_files(recipe: Recipe, source: str) -> Receipt:
    """The task. `source`: digest of the files and of the fields of `prompts`."""
    receipt = await in_thread(_store, recipe.prompts)
    if await in_thread(source_digest, recipe.prompts) != source:
        # A receipt would say for ever that the files as they were hold what was read half from others.
        raise SourceError(
            "the prompt files were changed while they were read",
            value=", ".join(recipe.prompts.paths),
            expected="files that stay as they are until they are loaded",
            remedy="run again when they are complete; write them elsewhere and move them into place",
        )
    return receipt


def _store(prompts: Prompts) -> Receipt:
    storage, found = workspace().storage, Found()
    slices: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    for part in stream_prompts(prompts):
        if isinstance(part, Slice):
            slices.append(storage.put_table("prompts", part.table).model_dump())
        elif isinstance(part, Rejected):
            rejected.append(storage.put_table("prompts", part.table).model_dump())
        else:
            found.add(part)
    return {
        "slices": slices,
        "rejected": rejected,
        "prompts": sum(ref["rows"] for ref in slices),
        "num_rejected": sum(ref["rows"] for ref in rejected),
        "found": found.to_json(),
    }
