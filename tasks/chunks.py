"""The chain of a chunk: generate, validate, upload; and all chains side by side.

A chain opens when the unsent rows of those before it fall below the in-flight
budget, so that the server is never idle at a chunk's tail. A chain goes on with
what its chunk got; what it did not get stays for the next run.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

from prefect import State

from draftmill.errors import DraftmillError
from draftmill.generation.night import NO_END, Night
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import ServerReport
from draftmill.rendering.prepare import Variants, structures_json
from draftmill.workspace import open_pool, pool, workspace
from tasks.generate import generate
from tasks.receipts import Receipt, run
from tasks.upload import upload
from tasks.validate import validate

log = logging.getLogger("draftmill.chunks")


@dataclass(slots=True)
class ChunkOutcome:
    """One chain: its receipts as far as it came; `error` is what ended it early."""

    chunk: Receipt
    opened: bool = False
    cached: bool = False
    generated: Receipt | None = None
    validated: Receipt | None = None
    uploaded: Receipt | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class RunOutcome:
    """All chains, what the pool counted, and why the run stopped early, if it did."""

    chunks: list[ChunkOutcome] = field(default_factory=list)
    requests: int = 0
    retries: int = 0
    stopped: DraftmillError | None = None


async def run_chunks(
    plan: Receipt, gate: Receipt, recipe: Recipe, variants: Variants, *, night: Night = NO_END
) -> RunOutcome:
    """All chunks of a plan on one pool, until `night` ends. Faults of rows and chunks are in the outcome."""
    if not plan["chunks"]:
        return RunOutcome()
    listener().stage(f"generating {plan['to_ask']} rows ({plan['resumed']} more are finished already)")
    structures = structures_json(variants)
    reports = [ServerReport(**report) for report in gate["reports"]]
    async with open_pool(recipe, variants, reports, plan["to_send"], night=night) as opened:
        outcomes = [ChunkOutcome(chunk) for chunk in plan["chunks"]]
        await asyncio.gather(*(_guarded(outcome, structures, recipe) for outcome in outcomes))
        if doubled := workspace().journal.duplicates:
            listener().stage(f"{doubled} rows were answered twice; the first answers count")
        if echoes := sum(outcome.validated["single_echo"] for outcome in outcomes if outcome.validated):
            listener().stage(f"{echoes} good answers begin with the prompt's last id; an ordinary id, so only counted")
        _say_ended_early([outcome.generated["ended_early"] for outcome in outcomes if outcome.generated])
        return RunOutcome(outcomes, opened.counts.requests, opened.counts.retries, opened.stopped)


def _say_ended_early(ended: list[dict[str, Any]]) -> None:
    rows = sum(each["rows"] for each in ended)
    if rows:
        first = next(each["first"] for each in ended if each["rows"])
        others = len({words for each in ended for words in each["causes"]}) - 1
        more = f" ({others} more causes)" if others else ""
        listener().stage(f"{rows} conversations end early, the first {first}{more}")


async def _guarded(outcome: ChunkOutcome, structures: dict[str, Any], recipe: Recipe) -> None:
    """A chain whose error is its own: the others go on and are sealed; the flow ends with it."""
    try:
        await _chain(outcome, structures, recipe)
    except Exception as error:
        log.exception("chunk %d ended early", outcome.chunk["number"])
        outcome.error = error


async def _chain(outcome: ChunkOutcome, structures: dict[str, Any], recipe: Recipe) -> None:
    chunk = outcome.chunk
    async with pool().opened(chunk["number"], chunk["num_rows"] - chunk["resumed"]):
        if pool().stopped:
            return
        outcome.opened = True
        state = await run(generate, chunk)
    outcome.cached = state.name == "Cached"
    outcome.generated = await _receipt(state, outcome)
    if outcome.generated is None or outcome.generated["completions"] is None:
        return
    outcome.validated = await _receipt(await run(validate, chunk, outcome.generated, structures, recipe), outcome)
    if outcome.validated is not None:
        outcome.uploaded = await _receipt(await run(upload, chunk, outcome.generated, outcome.validated), outcome)


async def _receipt(state: State[Any], outcome: ChunkOutcome) -> Receipt | None:
    """A state's receipt, also that of a Failed state that has one; an exception is noted on the outcome."""
    result = await state.aresult(raise_on_failure=False)
    if isinstance(result, BaseException):
        outcome.error = result
        return None
    return dict(result)
