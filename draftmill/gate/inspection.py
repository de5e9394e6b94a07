"""Looks at every server of a recipe: waits for it, reads its pages, compares tokens, asks one canary.

The servers are looked at beside each other, against one deadline. A server that
cannot be looked at is a refusal in the table like any other, so that the others
are seen too. A canary is not sent where the tokenizers or models differ: an id
beyond a model's vocabulary ends its engine.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, fields, replace
from types import ModuleType

import aiohttp

from draftmill import plugins
from draftmill.errors import GateRefused
from draftmill.gate.alterations import alteration_checks
from draftmill.gate.canary import ask_canary, canary_row
from draftmill.gate.room import room_checks
from draftmill.gate.several import agreement_checks
from draftmill.gate.table import Check, Gate, Level, check
from draftmill.gate.tokens import token_checks
from draftmill.gate.versions import version_check
from draftmill.gate.weights import Servers, weight_checks
from draftmill.generation.http import open_http
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import ServerReport
from draftmill.redaction import redacted, sent_key
from draftmill.rendering.prepare import Prepared

LOOK_EVERY_S = 2.0
"""Seconds between looks at a server that is not ready: it loads for minutes."""

REACH_TIMEOUT = aiohttp.ClientTimeout(total=10)
"""Seconds for any answer at all: a server that loads refuses or answers at once."""

SHORTEST_SECRET = 8
"""Characters. `EMPTY`, `sglang` or `default` are given as keys where none is wanted, and are values of reports too."""

ANOTHER_MODEL = frozenset({"model", "tokenizer", "markers", "highest id"})
"""Checks whose refusal means that our ids may not be this model's."""


async def look(recipe: Recipe, prepared: Prepared, *, last: Servers | None = None) -> Gate:
    """The gate of a recipe: its servers, all checks. `last`: the reports in the newest manifest, None without one."""
    async with open_http(recipe.engine) as http:
        protocol = plugins.load("engines", recipe.engine.kind)
        return await inspect_servers(recipe, prepared, protocol=protocol, http=http, last=last)


async def inspect_servers(
    recipe: Recipe,
    prepared: Prepared,
    *,
    protocol: ModuleType,
    http: aiohttp.ClientSession,
    last: Servers | None = None,
) -> Gate:
    """All checks of all servers, grouped by server. Never raises for what a server does or says."""
    looker = _Look(recipe, prepared, protocol, http, last, time.monotonic() + recipe.engine.wait_s)
    seen = await asyncio.gather(*(looker.server(url) for url in dict.fromkeys(recipe.engine.urls)))
    key = sent_key(http)
    reports = [without_key(report, key) for _, report in seen if report is not None]
    checks = [_without_key(each, key) for checks, _ in seen for each in checks]
    return Gate([*checks, *agreement_checks(reports)], reports)


def described(
    report: ServerReport, recipe: Recipe, prepared: Prepared, *, protocol: ModuleType, last: Servers | None
) -> list[Check]:
    """The checks that need no request: what a server says of itself against the recipe. Pure."""
    body = json.loads(protocol.payload(canary_row(recipe, prepared), recipe.sampling, rid="", model=""))
    sent = frozenset(body) | frozenset(body.get("sampling_params") or ())
    return [
        version_check(report),
        *weight_checks(report, recipe, last),
        *room_checks(report, recipe, prompt_reserve=int(protocol.PROMPT_RESERVE)),
        *alteration_checks(report, sent=sent),
    ]


def without_key(report: ServerReport, key: str | None) -> ServerReport:
    """The report as it may be stored and shown. A key that is a mere word stays a word: it may be a version's name."""
    if key is None or len(key) < SHORTEST_SECRET:
        return report
    return replace(report, **{field.name: redacted(getattr(report, field.name), key) for field in fields(report)})


def _without_key(each: Check, key: str | None) -> Check:
    return replace(each, seen=redacted(each.seen, key), remedy=redacted(each.remedy, key))


@dataclass(frozen=True, slots=True)
class _Look:
    """What looking at one server needs. `deadline_s`: monotonic, until when a server may load."""

    recipe: Recipe
    prepared: Prepared
    protocol: ModuleType
    http: aiohttp.ClientSession
    last: Servers | None
    deadline_s: float

    async def server(self, url: str) -> tuple[list[Check], ServerReport | None]:
        """One server's checks, and its report if it gave one."""
        checks = await self._waited(url)
        if any(each.level is Level.REFUSE for each in checks):
            return checks, None
        report: ServerReport | None = None
        try:
            report = await self._report(url)
            checks += described(report, self.recipe, self.prepared, protocol=self.protocol, last=self.last)
            model = report.model or self.recipe.model.name
            checks += await token_checks(self.http, self.protocol, report, self.prepared, model=model)
            checks.append(await self._canary(checks, report))
        except GateRefused as error:
            seen = f"{error.what}: {error.value}"
            checks.append(Check(url, "pages", Level.REFUSE, seen, error.expected, error.remedy))
        return checks, report

    async def _report(self, url: str) -> ServerReport:
        try:
            report: ServerReport = await self.protocol.report(self.http, url)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise GateRefused(
                f"{url} went away while its pages were read",
                value=f"{type(error).__name__}: {error}",
                expected="what it says of itself",
                remedy="look at the server's log, and start again",
            ) from None
        return report

    async def _waited(self, url: str) -> list[Check]:
        """Whether it is there and loaded, waited for until the deadline."""
        wait_s = self.recipe.engine.wait_s
        while (seen := await self.protocol.is_ready(self.http, url)) is not None:
            left_s = self.deadline_s - time.monotonic()
            if left_s <= 0:
                break
            words = redacted(seen, sent_key(self.http))
            listener().wait(f"{url} is not ready ({words}); waiting, {left_s:.0f} s left")
            await asyncio.sleep(min(LOOK_EVERY_S, left_s))
        reached = seen is None or await self._answers(url)
        reachable = check(
            url,
            "reachable",
            reached,
            seen="yes" if reached else seen,
            expected=f"an answer within {wait_s:.0f} s",
            remedy="start the server, correct engine.urls, or wait longer (engine.wait_s)",
        )
        if not reached:
            return [reachable]
        loaded = check(
            url,
            "loaded",
            seen is None,
            seen=seen or "yes",
            expected=f"ready within {wait_s:.0f} s",
            remedy="wait longer (engine.wait_s), or look at the server's log: it loads, drains or is stuck",
        )
        return [reachable, loaded]

    async def _answers(self, url: str) -> bool:
        """Whether anything at all answers there, ready or not."""
        try:
            async with self.http.get(url, timeout=REACH_TIMEOUT, allow_redirects=False):
                return True
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False

    async def _canary(self, checks: list[Check], report: ServerReport) -> Check:
        differing = [each.name for each in checks if each.level is Level.REFUSE and each.name in ANOTHER_MODEL]
        if not differing:
            return await ask_canary(self.recipe, self.prepared, self.protocol, self.http, report)
        return check(
            report.url,
            "canary",
            False,
            seen=f"not asked, because of: {', '.join(differing)}",
            expected="an answer of the model's structure",
            remedy="see to these first: ids that are not the model's can end its engine",
            level=Level.WARN,
        )
