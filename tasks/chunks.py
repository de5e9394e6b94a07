"""The chain of a chunk: generate, validate, upload; and all chains side by side.

A chain opens when the unsent rows of those before it fall below the in-flight
budget, so that the server is never idle at a chunk's tail. A chain goes on with
what its chunk got; what it did not get stays for the next run.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from prefect import State

from draftmill.errors import DraftmillError
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Prepared
from draftmill.workspace import open_pool, pool
from tasks.generate import generate
from tasks.receipts import Receipt, run
from tasks.upload import upload
from tasks.validate import validate


@dataclass(slots=True)
class ChunkOutcome:
    """One chain: its receipts as far as it came; `error` is what ended it early."""

    chunk: Receipt
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


async def run_chunks(plan: Receipt, gate: Receipt, recipe: Recipe, prepared: Prepared) -> RunOutcome:
    """All chunks of a plan on one pool. Faults of rows and chunks are in the outcome, not raised."""
    if not plan["chunks"]:
        return RunOutcome()
    listener().stage(f"generating {plan['to_ask']} rows ({plan['resumed']} more are finished already)")
    structure = prepared.structure.to_json()
    async with open_pool(recipe, prepared.structure, gate["engines"], plan["to_ask"]) as pool:
        chains = [_chain(chunk, structure, recipe) for chunk in plan["chunks"]]
        outcomes = await asyncio.gather(*chains)
        return RunOutcome(outcomes, pool.counts.requests, pool.counts.retries, pool.stopped)


async def _chain(chunk: Receipt, structure: dict[str, Any], recipe: Recipe) -> ChunkOutcome:
    outcome = ChunkOutcome(chunk)
    async with pool().opened(chunk["number"], chunk["num_rows"] - chunk["resumed"]):
        if pool().stopped:
            return outcome
        state = await run(generate, chunk)
    outcome.cached = state.name == "Cached"
    outcome.generated = await _receipt(state, outcome)
    if outcome.generated is None or outcome.generated["completions"] is None:
        return outcome
    outcome.validated = await _receipt(await run(validate, chunk, outcome.generated, structure, recipe), outcome)
    if outcome.validated is not None:
        outcome.uploaded = await _receipt(await run(upload, chunk, outcome.generated, outcome.validated), outcome)
    return outcome


async def _receipt(state: State[Any], outcome: ChunkOutcome) -> Receipt | None:
    """A state's receipt, also that of a Failed state that has one; an exception is noted on the outcome."""
    result = await state.aresult(raise_on_failure=False)
    if isinstance(result, BaseException):
        outcome.error = result
        return None
    return dict(result)
