"""One short answer, judged as any row is: do ids go in and come out unchanged?

The canary is a rendered prompt. Its echo must be the prompt, by ids and by
`prompt_tokens`; its count must be right; its ids must have the model's
structure; its weight version must be the one the server's pages say.
"""

from __future__ import annotations

import asyncio
import uuid
from types import ModuleType

import aiohttp

from draftmill.gate.table import Check, check
from draftmill.generation.retry import OUTCOMES, Outcome
from draftmill.judging.judge import judge_one
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Fault, FaultKind, Row, ServerReport
from draftmill.rendering.prepare import Prepared

CANARY_TOKENS = 16
"""Budget of the canary: enough to see the answer's first markers."""

CANARY_TIMEOUT_S = 120.0
"""Seconds. A cold server compiles kernels for its first request."""

CANARY_TRIES = 3
"""How often it is sent while faults come that another try may cure: one reset must not cost a night."""

CANARY_PAUSE_S = 2.0
"""Seconds between two tries."""

_CURABLE = frozenset({Outcome.RETRY_HERE, Outcome.RETRY_ELSEWHERE, Outcome.WAIT})


def canary_row(recipe: Recipe, prepared: Prepared) -> Row:
    """The row that is asked; it belongs to no dataset."""
    budget = min(CANARY_TOKENS, recipe.sampling.max_new_tokens)
    return Row("canary", 0, "canary", "canary", "default", 0, prepared.canary_ids, budget, None, "canary")


async def ask_canary(
    recipe: Recipe, prepared: Prepared, protocol: ModuleType, http: aiohttp.ClientSession, report: ServerReport
) -> Check:
    """The canary's line of the table. Costs up to CANARY_TOKENS tokens."""
    row = canary_row(recipe, prepared)
    result = await _ask(row, recipe, protocol, http, report)
    for _ in range(CANARY_TRIES - 1):
        if isinstance(result, Answer) or OUTCOMES[result.kind] not in _CURABLE:
            break
        await asyncio.sleep(CANARY_PAUSE_S)
        result = await _ask(row, recipe, protocol, http, report)
    seen, remedy = _fault_of(row, result, prepared, report)
    return check(
        report.url,
        "canary",
        remedy == "",
        seen=seen,
        expected="the prompt echoed to the id, and an answer of the model's structure and weights",
        remedy=remedy,
    )


def _fault_of(row: Row, result: Answer | Fault, prepared: Prepared, report: ServerReport) -> tuple[str, str]:
    """What was seen, and what to do; nothing to do when all is well."""
    if isinstance(result, Fault):
        return result.words, "look at the server's log; SGLang up to 0.4.10.post2 returns no ids"
    verdict = judge_one(Completion(row, result), prepared.structure, on_truncated="keep", degenerate="off")
    if verdict.reason is not None:
        return f"{verdict.reason}: {verdict.detail}", "see docs/reason-codes.md for what makes a server answer so"
    told, answered = report.weight_version, result.weight_version
    if None not in (told, answered) and told != answered:
        seen = f"an answer of weight version {answered}, from a server that says {told}"
        return seen, "wait until its weights are updated, or look whether several servers answer behind this URL"
    return f"{len(result.output_ids)} ids, {result.finish_type}", ""


async def _ask(
    row: Row, recipe: Recipe, protocol: ModuleType, http: aiohttp.ClientSession, report: ServerReport
) -> Answer | Fault:
    """The answer to one row, or why there is none."""
    rid = uuid.uuid4().hex
    body = protocol.payload(row, recipe.sampling, rid=rid, model=report.model or recipe.model.name)
    timeout, json_type = aiohttp.ClientTimeout(total=CANARY_TIMEOUT_S), {"Content-Type": "application/json"}
    url = report.url + protocol.GENERATE
    try:
        # As the pool sends it: a redirect would make a GET of it, or show the key to another host.
        async with http.post(url, data=body, headers=json_type, timeout=timeout, allow_redirects=False) as answer:
            content = await answer.read()
    except TimeoutError:
        return Fault(FaultKind.UNANSWERED, f"no answer in {CANARY_TIMEOUT_S:.0f} s")
    except (aiohttp.ClientError, OSError) as error:
        return Fault(FaultKind.RESET, f"{type(error).__name__}: {error}")
    result: Answer | Fault = protocol.read(
        answer.status, answer.headers, content, row=row, rid=rid, engine=report.engine
    )
    return result
