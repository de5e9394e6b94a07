"""The gate: is this the server the recipe describes, and does it answer ids with ids?

Waits while a server loads, then checks what it says of itself and sends one
canary. Costs a few tokens and saves nights: a wrong model, a reasoning parser or
an auto-truncating server would spoil every row in silence. Generates nothing
but the canary.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType

import aiohttp

from draftmill import plugins
from draftmill.arrays import Ids
from draftmill.errors import GateRefused
from draftmill.generation.http import open_http
from draftmill.judging.judge import judge_one
from draftmill.judging.structure import Structure
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Fault, Row, ServerReport
from draftmill.rendering.prepare import Prepared

LOOK_EVERY_S = 2.0
"""Seconds between looks at a server that is not ready: it loads for minutes."""

CANARY_TOKENS = 16
"""Budget of the canary: enough to see the answer's first markers."""

CANARY_TIMEOUT_S = 120.0
"""Seconds. A cold server compiles kernels for its first request."""


class Level(StrEnum):
    """What a check's result means for the run."""

    OK = "ok"
    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the gate's table."""

    url: str
    name: str
    level: Level
    seen: str
    expected: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate saw: every check, and each server's report."""

    checks: list[Check]
    reports: list[ServerReport]

    def refuse(self) -> None:
        """Raises GateRefused with the first refusal, if there is any."""
        refused = [check for check in self.checks if check.level is Level.REFUSE]
        if refused:
            first, more = refused[0], len(refused) - 1
            raise GateRefused(
                f"the gate refuses {first.url}: {first.name}"
                + (f" (and {more} more; see `draftmill gate`)" if more else ""),
                value=first.seen,
                expected=first.expected,
                remedy=first.remedy,
            )


async def look(recipe: Recipe, prepared: Prepared) -> Gate:
    """The gate of a recipe: its servers, all checks."""
    async with open_http(recipe.engine) as http:
        return await inspect_servers(
            recipe,
            prepared.structure,
            canary_ids=prepared.canary_ids,
            http=http,
            protocol=plugins.load("engines", recipe.engine.kind),
        )


async def inspect_servers(
    recipe: Recipe, structure: Structure, *, canary_ids: Ids, protocol: ModuleType, http: aiohttp.ClientSession
) -> Gate:
    """All checks of all servers. `canary_ids`: a rendered prompt.

    Raises GateRefused when a server is not ready within `engine.wait_s`.
    """
    deadline_s = time.monotonic() + recipe.engine.wait_s
    await asyncio.gather(*(_wait(http, protocol, url, deadline_s, recipe.engine.wait_s) for url in recipe.engine.urls))
    reports = [await protocol.report(http, url) for url in recipe.engine.urls]
    checks = [check for report in reports for check in self_description(report, recipe)]
    for report in reports:
        checks.append(await _canary(recipe, structure, canary_ids, protocol, http, report))
    return Gate(checks, reports)


async def _wait(http: aiohttp.ClientSession, protocol: ModuleType, url: str, deadline_s: float, wait_s: float) -> None:
    while (seen := await protocol.is_ready(http, url)) is not None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise GateRefused(
                f"{url} is not ready",
                value=seen,
                expected=f"/health to answer 200 within {wait_s:.0f} s (engine.wait_s)",
                remedy="start the server, or correct engine.urls",
            )
        listener().wait(f"{url} is not ready ({seen}); waiting, {left_s:.0f} s left")
        await asyncio.sleep(min(LOOK_EVERY_S, left_s))


def self_description(report: ServerReport, recipe: Recipe) -> Sequence[Check]:
    """The checks that need no request: what a server says of itself against the recipe. Pure."""
    names = (report.model, report.facts.get("model_path"))
    context = report.context_length
    pool = report.facts.get("max_total_num_tokens")
    return [
        _check(
            report,
            "model",
            recipe.model.name in names,
            seen=str(report.model),
            expected=recipe.model.name,
            remedy="correct model.name, or start the server with --served-model-name",
        ),
        _check(
            report,
            "context length",
            context is not None and context >= recipe.model.context_length,
            seen=str(context),
            expected=f"at least {recipe.model.context_length}",
            remedy="lower model.context_length, or start the server with a larger --context-length",
        ),
        _check(
            report,
            "KV pool",
            not isinstance(pool, int) or pool >= recipe.model.context_length,
            seen=f"{pool} tokens",
            expected=f"at least {recipe.model.context_length}",
            remedy="rows would be cut below their budget in silence, and asked again every night: give the server more "
            "KV memory, or lower model.context_length",
        ),
        _check(
            report,
            "engine",
            not report.facts.get("notes"),
            level=Level.WARN,
            seen=str(report.facts.get("notes") or report.engine),
            expected="an inference server",
            remedy="good for trying things out; its answers are no training data",
        ),
        _check(
            report,
            "reasoning parser",
            report.reasoning_parser is None,
            seen=str(report.reasoning_parser),
            expected="none",
            remedy="start the server without --reasoning-parser: some versions strip the think markers from the ids",
        ),
        _check(
            report,
            "auto truncate",
            not report.auto_truncate,
            seen=str(report.auto_truncate),
            expected="False",
            remedy="start the server without --allow-auto-truncate: it cuts prompts in silence",
        ),
    ]


def _check(
    report: ServerReport, name: str, holds: bool, *, seen: str, expected: str, remedy: str, level: Level = Level.REFUSE
) -> Check:
    return Check(report.url, name, Level.OK if holds else level, seen, expected, "" if holds else remedy)


async def _canary(
    recipe: Recipe,
    structure: Structure,
    canary_ids: Ids,
    protocol: ModuleType,
    http: aiohttp.ClientSession,
    report: ServerReport,
) -> Check:
    budget = min(CANARY_TOKENS, recipe.sampling.max_new_tokens)
    row = Row("canary", 0, "canary", "canary", "default", 0, canary_ids, budget, None, "canary")
    result = await _ask(row, recipe, protocol, http, report)
    expected = "the prompt echoed to the id, and an answer of the model's structure"
    if isinstance(result, str):
        remedy = "look at the server's log; SGLang up to 0.4.10.post2 returns no ids"
        return _check(report, "canary", False, seen=result, expected=expected, remedy=remedy)
    verdict = judge_one(Completion(row, result), structure, on_truncated="keep", degenerate="off")
    good = verdict.reason is None
    seen = f"{len(result.output_ids)} ids, {result.finish_type}" if good else f"{verdict.reason}: {verdict.detail}"
    remedy = "see docs/reason-codes.md for what makes a server answer so"
    return _check(report, "canary", good, seen=seen, expected=expected, remedy=remedy)


async def _ask(
    row: Row, recipe: Recipe, protocol: ModuleType, http: aiohttp.ClientSession, report: ServerReport
) -> Answer | str:
    """The answer to one row, or in words why there is none."""
    rid = uuid.uuid4().hex
    body = protocol.payload(row, recipe.sampling, rid=rid)
    timeout = aiohttp.ClientTimeout(total=CANARY_TIMEOUT_S)
    url = report.url + protocol.GENERATE
    try:
        # As the pool sends it: a redirect would make a GET of it, or show the key to another host.
        async with http.post(url, json=body, timeout=timeout, allow_redirects=False) as answer:
            content = await answer.read()
    except TimeoutError:
        return f"no answer in {CANARY_TIMEOUT_S:.0f} s"
    except aiohttp.ClientError as error:
        return f"{type(error).__name__}: {error}"
    result: Answer | Fault = protocol.read(
        answer.status, answer.headers, content, row=row, rid=rid, engine=report.engine
    )
    return result.words if isinstance(result, Fault) else result
