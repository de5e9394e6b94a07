"""Who asks for what is missing: this process (`generate_here`), or partitions on other machines (`partitions`).

Both take a plan and come back with the plan that is to be sealed, what the gate
said of the servers, and what became of every chunk of that plan.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from prefect.settings import get_current_settings

from draftmill.dataset.tails import upload_tails
from draftmill.generation.night import Night
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants
from draftmill.workspace import in_thread, workspace
from tasks.chunks import RunOutcome, run_chunks
from tasks.gate import gate
from tasks.partition_runs import end_left_behind
from tasks.receipts import Receipt

log = logging.getLogger("draftmill.generated")

NO_GATE: dict[str, Any] = {"reports": []}
"""A run that asks nothing needs no server."""

Replan = Callable[[], Awaitable[Receipt]]
"""The plan anew, on what is in the dataset by now."""


@dataclass(frozen=True, slots=True)
class Generated:
    """`outcome` is of `plan`'s chunks."""

    plan: Receipt
    gate: Receipt
    outcome: RunOutcome


class Generate(Protocol):
    """Asks for what the plan misses, until `night` ends."""

    async def __call__(
        self, plan: Receipt, recipe: Recipe, variants: Variants, *, night: Night, replan: Replan
    ) -> Generated: ...


async def generate_here(
    plan: Receipt, recipe: Recipe, variants: Variants, *, night: Night, replan: Replan
) -> Generated:
    """In this process, on one pool; what a fan-out of this dataset has left behind asks no more."""
    if plan["to_ask"] and await _ended_others(recipe):
        plan = await plan_again(replan)
    passed = await gate(recipe, variants, night=night) if plan["to_ask"] else NO_GATE
    return Generated(plan, passed, await run_chunks(plan, passed, recipe, variants, night=night))


async def plan_again(replan: Replan) -> Receipt:
    """The plan anew, on what partitions brought; what died on this machine first."""
    space = workspace()
    await in_thread(upload_tails, space.storage, held=space.journal.path)
    return await replan()


async def _ended_others(recipe: Recipe) -> bool:
    """Whether there were any. Only rows asked twice are at stake: a fault here ends no run."""
    if get_current_settings().api.url is None:
        return False  # a server of this process's own knows of no partition
    try:
        return await end_left_behind(recipe)
    except Exception as error:
        log.warning("partitions of an earlier fan-out could not be looked for: %s", error)
        return False
