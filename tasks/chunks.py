"""The chain of a chunk: generate, validate, upload; and all chains side by side.

A chain opens when the unsent rows of those before it fall below the in-flight
budget, so that the server is never idle at a chunk's tail. A chain goes on with
what its chunk got; what it did not get stays for the next run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefect import State

from draftmill.errors import DraftmillError
from draftmill.generation.night import NO_END, Night
from draftmill.generation.pool import Counts
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import ServerReport
from draftmill.rendering.prepare import Variants, structures_json
from draftmill.workspace import open_pool, pool, workspace
from tasks.follow import watch
from tasks.generate import generate
from tasks.receipts import Receipt, run
from tasks.upload import upload
from tasks.validate import validate

log = logging.getLogger("draftmill.chunks")


@dataclass(slots=True)
class ChunkOutcome:
    """One chain: its receipts as far as it came; `began_s`: when it opened, in monotonic seconds; `error` is what ended
    it early."""

    chunk: Receipt
    opened: bool = False
    began_s: float = 0.0
    cached: bool = False
    generated: Receipt | None = None
    validated: Receipt | None = None
    uploaded: Receipt | None = None
    error: BaseException | None = None
    over: bool = False


@dataclass(slots=True)
class RunOutcome:
    """All chains, what the pool counts, and why the run stopped early, if it did.

    `before`, `tokens`: rows that were finished when the run began, and tokens of those asked now, where its chains
    cannot tell: partitions generated, and a chain took up what was there. `failed`: the last words of all rows that
    failed, of which receipts name some; `stop`: ends its pool, once there is one. `left`: rows that a pilot leaves to
    the run behind it.
    """

    chunks: list[ChunkOutcome] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    stopped: DraftmillError | None = None
    before: int | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stop: Callable[[DraftmillError], None] | None = None
    left: int = 0


async def run_chunks(
    plan: Receipt,
    gate: Receipt,
    recipe: Recipe,
    variants: Variants,
    *,
    night: Night = NO_END,
    outcome: RunOutcome | None = None,
    unasked: Mapping[str, str] | None = None,
) -> RunOutcome:
    """All chunks of a plan on one pool, until `night` ends. Faults of rows and chunks are in the outcome.

    `outcome`: the one that is returned, for who looks at it meanwhile. `unasked`: as in `workspace.open_pool`.
    """
    outcome = outcome or RunOutcome()
    if not plan["chunks"]:
        return outcome
    listener().stage(f"generating {plan['to_ask']} rows ({plan['resumed']} more are finished already)")
    structures = structures_json(variants)
    reports = [ServerReport(**report) for report in gate["reports"]]
    async with open_pool(recipe, variants, reports, plan["to_send"], night=night, unasked=unasked) as opened:
        outcomes = [ChunkOutcome(chunk) for chunk in plan["chunks"]]
        outcome.chunks, outcome.counts = outcomes, opened.counts
        outcome.failed, outcome.stop = opened.failed, opened.stop
        watch(opened)
        await asyncio.gather(*(_guarded(outcome, structures, recipe) for outcome in outcomes))
        if doubled := workspace().journal.duplicates:
            listener().stage(f"{doubled} rows were answered twice; the first answers count")
        if echoes := sum(outcome.validated["single_echo"] for outcome in outcomes if outcome.validated):
            listener().stage(f"{echoes} good answers begin with the prompt's last id; an ordinary id, so only counted")
        _say_ended_early([outcome.generated["ended_early"] for outcome in outcomes if outcome.generated])
        outcome.stopped = opened.stopped
        return outcome


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
        if outcome.opened:
            log.info("%s", chunk_line(outcome, requests=pool().counts.of_chunk[outcome.chunk["number"]]))
    except Exception as error:
        log.exception("chunk %d ended early", outcome.chunk["number"])
        outcome.error = error
    outcome.over = True


def chunk_line(outcome: ChunkOutcome, *, requests: int) -> str:
    """A chunk that is done, in numbers: for the log, so without an id or a text of any row."""
    chunk, generated, validated = outcome.chunk, outcome.generated, outcome.validated
    parts = []
    if validated:
        parts.append(f"{validated['ok']} good")
        reasons = ", ".join(f"{reason} {number}" for reason, number in validated["reasons"].items())
        parts += [f"{validated['quarantined']} quarantined ({reasons})"] if validated["quarantined"] else []
    if generated:
        parts += [f"{generated[name]} {name}" for name in ("failed", "pending") if generated[name]]
    if outcome.error:
        parts.append(f"ended by {type(outcome.error).__name__}")
    how = "cached, " if outcome.cached else ""
    came = f"{requests} requests in {time.monotonic() - outcome.began_s:.0f} s"
    return f"chunk {chunk['number']}/{chunk['total']}: {how}{', '.join(parts) or 'nothing'}; {came}"


async def _chain(outcome: ChunkOutcome, structures: dict[str, Any], recipe: Recipe) -> None:
    chunk = outcome.chunk
    async with pool().opened(chunk["number"], chunk["num_rows"] - chunk["resumed"]):
        if pool().stopped:
            return
        outcome.opened, outcome.began_s = True, time.monotonic()
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
