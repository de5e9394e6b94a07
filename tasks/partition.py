"""A partition's own side: its share of a fan-out's chunks, asked and brought into the dataset; never sealed.

It tells its parent how it stands through a report in the dataset (`partition_report`).
What it could not do is in there as an error; only a partition that was killed or
cancelled leaves none.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from prefect import State
from prefect.states import Completed, Failed

from draftmill.dataset.partition_objects import read_share
from draftmill.errors import DatasetError, GateRefused, RecipeError
from draftmill.gate.several import differences
from draftmill.generation.continuing import slice_of
from draftmill.generation.night import NO_END, Night
from draftmill.identity import digest
from draftmill.recipe import Recipe
from draftmill.records import ServerReport
from draftmill.rendering.prepare import Variants, prepare, renders, structures_json
from draftmill.workspace import in_thread, workspace
from tasks.chunks import RunOutcome, run_chunks
from tasks.gate import gate
from tasks.partition_report import first_error, reporting
from tasks.receipts import Receipt


def night_at(ends_at: datetime | None, until: str) -> Night:
    """The parent's night on this machine's clocks: it has taken its reserve for sealing off already."""
    if ends_at is None:
        return NO_END
    return Night(time.monotonic() + (ends_at - datetime.now(UTC)).total_seconds(), until)


async def ask_share(share: str, report: str, recipe: Recipe, *, night: Night, tails: list[str]) -> RunOutcome:
    """All of a share's chunks. `share`, `report`: their paths; `tails`: parts that nobody knew of at the plan.

    Raises RecipeError when this machine renders otherwise than the parent's, GateRefused for other servers than its.
    """
    outcome = RunOutcome()
    async with reporting(report, outcome):
        work = await in_thread(_read, share)
        variants = await asyncio.to_thread(prepare, recipe)
        _check_same_machine(variants, work)
        passed = await gate(recipe, variants, night=night)
        _check_same_servers(passed, work, recipe)
        if slice_of(recipe) is None:
            # An answer in parts goes on where the plan says; of those the plan must know first.
            _add_parts(work["plan"], tails)
        return await run_chunks(work["plan"], passed, recipe, variants, night=night, outcome=outcome)


def end_state(outcome: RunOutcome) -> State[dict[str, Any]]:
    """The run's final state: its rows missing are the parent's to count and to name."""
    receipts = [chunk.generated for chunk in outcome.chunks if chunk.generated]
    rows = {name: sum(each[name] for each in receipts) for name in ("generated", "resumed", "failed", "pending")}
    rows["pending"] += sum(chunk.chunk["num_rows"] for chunk in outcome.chunks if not chunk.generated)
    error = first_error(outcome)
    if error or rows["failed"] or rows["pending"]:
        words = f"{rows['failed']} rows failed, {rows['pending']} were not asked; the fan-out takes them up"
        headline = getattr(error, "headline", str(error)) if error else ""
        return Failed(name="RowsMissing", message=f"{headline}\n{words}\n{error}" if error else words, data=rows)
    return Completed(message=f"{rows['generated']} rows generated; the fan-out seals them", data=rows)


def _read(path: str) -> dict[str, Any]:
    try:
        return read_share(workspace().storage, path)
    except FileNotFoundError:
        raise DatasetError(
            "this partition's share is gone",
            value=path,
            expected="the object that its fan-out wrote, as long as that runs",
            remedy="run the fan-out again: it plans anew; finished rows are kept",
        ) from None


def _check_same_machine(variants: Variants, work: dict[str, Any]) -> None:
    here = how_rendered(variants)
    if here != work["rendered"]:
        raise RecipeError(
            "this machine reads the model's tokenizer or chat template otherwise than the fan-out's",
            value=f"{here}",
            expected=f"{work['rendered']}",
            remedy="give all machines the same tokenizer files, chat template and versions of draftmill, transformers",
        )


def how_rendered(variants: Variants) -> dict[str, str]:
    """What must be the same on every machine: how prompts become ids, and how answers are judged."""
    return {"renders": renders(variants), "structures": digest(structures_json(variants))}


def _check_same_servers(passed: Receipt, work: dict[str, Any], recipe: Recipe) -> None:
    before = {report["url"]: ServerReport(**report) for report in work["servers"]}
    for each in passed["reports"]:
        changed = differences(before[each["url"]], ServerReport(**each))
        if recipe.engine.weights == "record":
            changed.pop("weight version", None)
        if changed:
            raise GateRefused(
                f"{each['url']} is not the server that the fan-out saw",
                value="; ".join(f"{what}: {now}" for what, (_, now) in changed.items()),
                expected="; ".join(f"{what}: {was}" for what, (was, _) in changed.items()),
                remedy="let every machine reach the same servers by these URLs, and leave them as they are meanwhile",
            )


def _add_parts(plan: Receipt, tails: list[str]) -> None:
    for chunk in plan["chunks"]:
        chunk["parts"] = sorted({*chunk["parts"], *tails})
