"""Who asks for what is missing: this process (`generate_here`), or partitions on other machines (`partitions`).

Both take a plan and come back with the plan that is to be sealed, what the gate
said of the servers, and what became of every chunk of that plan.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from draftmill.generation.night import Night
from draftmill.recipe import Recipe
from draftmill.rendering.prepare import Variants
from tasks.chunks import RunOutcome, run_chunks
from tasks.gate import gate
from tasks.receipts import Receipt

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
    """In this process, on one pool."""
    passed = await gate(recipe, variants, night=night) if plan["to_ask"] else NO_GATE
    return Generated(plan, passed, await run_chunks(plan, passed, recipe, variants, night=night))
