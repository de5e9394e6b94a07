"""A server that was gone seems to be back: is it the same one?

It may have come back with other weights, another context or another model
behind the same URL. One look, no waiting: whoever asks will ask again. A fault
on the way is NOT_YET, never an exception; only what a healthy server says can
make it OTHER.
"""

from __future__ import annotations

from types import ModuleType

import aiohttp

from draftmill.errors import GateRefused
from draftmill.gate.canary import ask_canary
from draftmill.gate.inspection import described, of_variants
from draftmill.gate.several import differences
from draftmill.gate.table import Level
from draftmill.recipe import Recipe
from draftmill.records import Return, Returned, ServerReport
from draftmill.redaction import redacted, sent_key, without_key
from draftmill.rendering.prepare import Variants


async def look_again(
    recipe: Recipe, variants: Variants, before: ServerReport, *, protocol: ModuleType, http: aiohttp.ClientSession
) -> Returned:
    """One look at the server of `before`. With `engine.weights: record`, another weight version alone is SAME."""
    found = await _look_again(recipe, variants, before, protocol, http)
    return Returned(found.state, redacted(found.words, sent_key(http)), found.report)


async def _look_again(
    recipe: Recipe, variants: Variants, before: ServerReport, protocol: ModuleType, http: aiohttp.ClientSession
) -> Returned:
    try:
        seen = await protocol.is_ready(http, before.url)
        if seen is not None:
            return Returned(Return.NOT_YET, seen)
        said: ServerReport = await protocol.report(http, before.url, model=recipe.model.name)
    except GateRefused as error:
        return Returned(Return.NOT_YET, f"{error.what}: {error.value}")
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        return Returned(Return.NOT_YET, f"{type(error).__name__}: {error}")
    # `before` has been kept, without the key: only so are the two alike, should the key stand in a path.
    report = without_key(said, sent_key(http))
    if other := _other(recipe, before, report) or _refused(variants, said, protocol):
        return Returned(Return.OTHER, other, report)
    for prepared in variants.values():
        canary = await ask_canary(prepared, protocol, http, said)
        if canary.level is not Level.OK:
            return Returned(Return.NOT_YET, f"its canary: {canary.seen}", report)
    changed = differences(before, report)
    return Returned(Return.SAME, _said(changed) or "the same server", report)


def _other(recipe: Recipe, before: ServerReport, report: ServerReport) -> str | None:
    """In words what makes it another server; None when nothing does. Pure."""
    changed = differences(before, report)
    if recipe.engine.weights == "record":
        changed.pop("weight version", None)
    return _said(changed) or None


def _refused(variants: Variants, said: ServerReport, protocol: ModuleType) -> str | None:
    """In words what the gate would refuse of what the server says of itself; None when nothing. Pure."""
    found = {name: described(said, prepared, protocol=protocol, last=None) for name, prepared in variants.items()}
    refused = [each for each in of_variants(found) if each.level is Level.REFUSE]
    return "; ".join(f"{each.name}: {each.seen}, expected {each.expected}" for each in refused) or None


def _said(changed: dict[str, tuple[str, str]]) -> str:
    return "; ".join(f"{what} was {before} and is {now}" for what, (before, now) in changed.items())
