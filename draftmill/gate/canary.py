"""One short answer, judged as any row is: do ids go in and come out unchanged?

The canary is a rendered prompt. Its echo must be the prompt, by ids and by
`prompt_tokens`; its count must be right; its ids must have the model's
structure; its weight version must be the one the server's pages say. A model
that was taken for plain, since nothing speaks of reasoning, must not open any.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from types import ModuleType

import aiohttp

from draftmill.gate.table import Check, check
from draftmill.gate.tries import NOT_WAITING, Patience, tried
from draftmill.generation.exchange import exchange
from draftmill.generation.retry import OUTCOMES, Outcome
from draftmill.generation.servers import Flight
from draftmill.generation.tickets import Asked, Ticket
from draftmill.judging.judge import judge_one
from draftmill.judging.structure import Marker
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import Answer, Completion, Fault, FaultKind, Row, ServerReport
from draftmill.rendering.prepare import Prepared

CANARY_TOKENS = 16
"""Budget of the canary: enough to see the answer's first markers."""

CANARY_TIMEOUT_S = 120.0
"""Seconds. A cold server compiles kernels for its first request."""

SHORTEST_TIMEOUT_S = 10.0
"""Seconds that the canary has in any case: a night may end while the gate looks, and a good server is soon seen."""


def canary_row(prepared: Prepared) -> Row:
    """The row that is asked; it belongs to no dataset."""
    budget = min(CANARY_TOKENS, prepared.recipe.sampling.max_new_tokens)
    return Row("canary", 0, "canary", "canary", "default", 0, prepared.canary_ids, budget, None, "canary")


async def ask_canary(
    prepared: Prepared,
    protocol: ModuleType,
    http: aiohttp.ClientSession,
    report: ServerReport,
    *,
    patience: Patience = NOT_WAITING,
) -> Check:
    """The canary's line of the table. Costs up to CANARY_TOKENS tokens. A server that is full is waited for."""
    row, recipe = canary_row(prepared), prepared.recipe

    def full(fault: Fault) -> None:
        listener().wait(f"{report.url} takes no request ({fault.words}); waiting, {patience.left_s():.0f} s left")

    result = await tried(lambda: _ask(row, recipe, protocol, http, report, patience), patience, heard=full)
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
    if isinstance(result, Fault) and OUTCOMES[result.kind] is Outcome.WAIT:
        return result.words, "wait longer (engine.wait_s), or see who keeps the server busy"
    if isinstance(result, Fault):
        return result.words, "look at the server's log; SGLang up to 0.4.10.post2 returns no ids"
    verdict = judge_one(Completion(row, result), prepared.structure, on_truncated="keep", degenerate="off")
    if verdict.reason is not None:
        return f"{verdict.reason}: {verdict.detail}", "see docs/reason-codes.md for what makes a server answer so"
    if (marker := _opened(result, prepared)) is not None:
        ids, text = marker
        seen = (
            f"the answer begins with {list(ids)}, which opens {text!r}; nothing in tokenizer or template speaks of it"
        )
        return seen, (
            "set `structure: think` in the recipe (with a model.chat_template that names the marker, where it is not "
            "<think>), or `structure: plain` if such answers are meant"
        )
    told, answered = report.weight_version, result.weight_version
    if None not in (told, answered) and told != answered:
        seen = f"an answer of weight version {answered}, from a server that says {told}"
        return seen, "wait until its weights are updated, or look whether several servers answer behind this URL"
    return f"{len(result.output_ids)} ids, {result.finish_type}", ""


def _opened(answer: Answer, prepared: Prepared) -> tuple[Marker, str] | None:
    """The beginning of a marker of reasoning that a plain model's answer begins with, white space aside."""
    ids, blanks = answer.output_ids.tolist(), set(prepared.structure.blank_ids)
    starts = {0, next((place for place, index in enumerate(ids) if index not in blanks), 0)}
    begins = ((form, text) for start in starts for form, text in prepared.suspects.items() if _is_at(ids, form, start))
    return next(begins, None)


def _is_at(ids: list[int], form: Marker, start: int) -> bool:
    return tuple(ids[start : start + len(form)]) == form


async def _ask(
    row: Row,
    recipe: Recipe,
    protocol: ModuleType,
    http: aiohttp.ClientSession,
    report: ServerReport,
    patience: Patience,
) -> Answer | Fault:
    """The answer to one row, or why there is none: asked as the pool asks, under the recipe's name of the model."""
    ticket = Ticket((0, 0), row, Asked(), asyncio.Event(), num_rows=1)
    flight = Flight(uuid.uuid4().hex, ticket, row, time.monotonic())
    body = protocol.payload(row, recipe.sampling, rid=flight.rid, model=recipe.model.name)
    timeout_s = min(CANARY_TIMEOUT_S, max(SHORTEST_TIMEOUT_S, patience.night_left_s()))
    try:
        async with asyncio.timeout(timeout_s):
            return await exchange(http, protocol, flight, body, url=report.url, engine=report.engine)
    except TimeoutError:
        return Fault(FaultKind.UNANSWERED, f"no answer in {timeout_s:.0f} s")
