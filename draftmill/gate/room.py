"""How much fits: context, longest prompt and KV pool of a server against the recipe. Pure."""

from __future__ import annotations

from draftmill.gate.table import Check, check
from draftmill.recipe import Recipe
from draftmill.records import ServerReport


def room_checks(report: ServerReport, recipe: Recipe, *, prompt_reserve: int) -> list[Check]:
    """`prompt_reserve`: tokens of the context that the engine keeps from any prompt."""
    wanted = recipe.model.context_length
    context, pool = report.context_length, report.facts.get("max_total_num_tokens")
    longest = wanted - prompt_reserve
    return [
        check(
            report.url,
            "context length",
            context is not None and context >= wanted,  # a server that does not say is not believed
            seen=context,
            expected=f"at least {wanted}",
            remedy="lower model.context_length, or start the server with a larger --context-length",
        ),
        check(
            report.url,
            "longest prompt",
            report.max_prompt is None or report.max_prompt >= longest,
            seen=report.max_prompt,
            expected=f"at least {longest}",
            remedy="prompts up to the context would be refused one by one: give the server more KV memory, or lower "
            "model.context_length",
        ),
        check(
            report.url,
            "KV pool",
            not isinstance(pool, int) or pool >= wanted,
            seen=f"{pool} tokens" if isinstance(pool, int) else None,
            expected=f"at least {wanted}",
            remedy="rows would be cut below their budget in silence, and asked again every night: give the server more "
            "KV memory, or lower model.context_length",
        ),
    ]
