"""Looks at every server of a recipe: waits for it, reads its pages, compares tokens, asks one canary.

The servers are looked at beside each other, against one deadline. A server that
cannot be looked at is a refusal in the table like any other, so that the others
are seen too. A canary is not sent where the tokenizers or models differ: an id
beyond a model's vocabulary ends its engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from draftmill.gate.tries import Patience, patience_of
from draftmill.gate.versions import version_check
from draftmill.gate.weights import Servers, weight_checks
from draftmill.generation.http import open_http
from draftmill.generation.night import NO_END, Night
from draftmill.progress import listener
from draftmill.recipe import Recipe
from draftmill.records import ServerReport
from draftmill.redaction import redacted, sent_key, without_key
from draftmill.rendering.prepare import Prepared, Variants

LOOK_EVERY_S = 2.0
"""Seconds between looks at a server that is not ready: it loads for minutes."""

REACH_TIMEOUT = aiohttp.ClientTimeout(total=10)
"""Seconds for any answer at all: a server that loads refuses or answers at once."""

ANOTHER_MODEL = frozenset({"model", "tokenizer", "markers", "highest id"})
"""Checks whose refusal means that our ids may not be this model's."""


async def look(recipe: Recipe, variants: Variants, *, last: Servers | None = None, night: Night = NO_END) -> Gate:
    """The gate of a recipe: its servers, all checks.

    `last`: the reports in the newest manifest, None without one; `night`: when waiting for servers ends at the latest.
    """
    async with open_http(recipe.engine) as http:
        protocol = plugins.load("engines", recipe.engine.kind)
        return await inspect_servers(recipe, variants, protocol=protocol, http=http, last=last, night=night)


async def inspect_servers(
    recipe: Recipe,
    variants: Variants,
    *,
    protocol: ModuleType,
    http: aiohttp.ClientSession,
    last: Servers | None = None,
    night: Night = NO_END,
) -> Gate:
    """All checks of all servers, grouped by server. Never raises for what a server does or says."""
    looker = _Look(recipe, variants, protocol, http, last, patience_of(recipe.engine, night))
    seen = await asyncio.gather(*(looker.server(url) for url in dict.fromkeys(recipe.engine.urls)))
    key = sent_key(http)
    reports = [without_key(each.report, key) for each in seen if each.report is not None]
    checks = [_without_key(check, key) for each in seen for check in each.checks]
    compared = all(each.tokenizer_equal for each in seen)
    return Gate([*checks, *agreement_checks(reports, compared=compared)], reports)


def described(report: ServerReport, prepared: Prepared, *, protocol: ModuleType, last: Servers | None) -> list[Check]:
    """The checks that need no request: what a server says of itself against one variant. Pure."""
    recipe = prepared.recipe
    body = json.loads(protocol.payload(canary_row(prepared), recipe.sampling, rid="", model=""))
    sent = frozenset(body) | frozenset(body.get("sampling_params") or ())
    return [
        version_check(report),
        *weight_checks(report, recipe, last, sent=sent),
        *room_checks(report, recipe, prompt_reserve=int(protocol.PROMPT_RESERVE)),
        *alteration_checks(report, sent=sent),
    ]


def of_variants(found: Mapping[str, list[Check]]) -> list[Check]:
    """One list for all variants: a check that is the same for each stands once, others carry their variant's name."""
    shared = [check for check in next(iter(found.values())) if all(check in checks for checks in found.values())]
    own = [
        replace(check, name=f"{check.name} ({variant})")
        for variant, checks in found.items()
        for check in checks
        if check not in shared
    ]
    return [*shared, *own]


def _without_key(each: Check, key: str | None) -> Check:
    seen, expected, remedy = redacted((each.seen, each.expected, each.remedy), key)
    return replace(each, seen=seen, expected=expected, remedy=remedy)


@dataclass(slots=True)
class _Seen:
    """One server: its checks, its report if it gave one, and whether its tokenizer gave our ids."""

    checks: list[Check]
    report: ServerReport | None = None
    tokenizer_equal: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """What looking at one server needs. `patience`: until when it may load, or be full."""

    recipe: Recipe
    variants: Variants
    protocol: ModuleType
    http: aiohttp.ClientSession
    last: Servers | None
    patience: Patience

    async def server(self, url: str) -> _Seen:
        """All about one server."""
        seen = _Seen(await self._waited(url))
        if any(each.level is Level.REFUSE for each in seen.checks):
            return seen
        try:
            await self._pages(url, seen)
        except GateRefused as error:
            words = f"{error.what}: {error.value}"
            seen.checks.append(Check(url, "pages", Level.REFUSE, words, error.expected, error.remedy))
        return seen

    async def _pages(self, url: str, seen: _Seen) -> None:
        seen.report = report = await self._report(url)
        looked = {name: await self._variant(url, report, prepared) for name, prepared in self.variants.items()}
        seen.checks += of_variants({name: checks for name, (checks, _) in looked.items()})
        seen.tokenizer_equal = all(equal for _, equal in looked.values())

    async def _variant(self, url: str, report: ServerReport, prepared: Prepared) -> tuple[list[Check], bool]:
        """The checks of one variant, and whether the server's tokenizer gave its ids."""
        checks = described(report, prepared, protocol=self.protocol, last=self.last)
        # By the recipe's name, as every row: the server's own may be another, or hold the key.
        name, patience = self.recipe.model.name, self.patience
        tokens = await token_checks(self.http, self.protocol, url, prepared, model=name, patience=patience)
        checks += tokens.checks
        return [*checks, await self._canary(checks, report, prepared)], tokens.equal

    async def _report(self, url: str) -> ServerReport:
        try:
            report: ServerReport = await self.protocol.report(self.http, url, model=self.recipe.model.name)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise GateRefused(
                f"{url} went away while its pages were read",
                value=f"{type(error).__name__}: {error}",
                expected="what it says of itself",
                remedy="look at the server's log, and start again",
            ) from None
        return report

    async def _waited(self, url: str) -> list[Check]:
        """Whether it is there and loaded, waited for as long as there is patience."""
        wait_s = self.patience.wait_s
        while (seen := await self.protocol.is_ready(self.http, url)) is not None:
            left_s = self.patience.left_s()
            if left_s == 0:
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

    async def _canary(self, checks: list[Check], report: ServerReport, prepared: Prepared) -> Check:
        differing = [each.name for each in checks if each.level is Level.REFUSE and each.name in ANOTHER_MODEL]
        if not differing:
            return await ask_canary(prepared, self.protocol, self.http, report, patience=self.patience)
        return check(
            report.url,
            "canary",
            False,
            seen=f"not asked, because of: {', '.join(differing)}",
            expected="an answer of the model's structure",
            remedy="see to these first: ids that are not the model's can end its engine",
            level=Level.WARN,
        )
