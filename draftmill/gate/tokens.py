"""Does the server cut text into the same ids? Its own `/tokenize` against our rendering.

draftmill never asks a server to tokenize for a row: this is the proof that the
ids it sends mean to the model what they mean here. One difference refuses, with
the place and both sides' ids; one in conversations with tools alone warns, since
versions order a tool's keys differently. Where a server has no such page, takes
no conversations or does not answer there, nothing can be compared, and the check
says so.

No server tells the size of its vocabulary. What can be had of the highest id:
the config.json beside the tokenizer, and the server's id for its token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import aiohttp
import numpy as np

from draftmill.arrays import Ids
from draftmill.gate.table import Check, Level, check
from draftmill.gate.tries import NOT_WAITING, Patience, tried
from draftmill.records import Fault, FaultKind
from draftmill.rendering.prepare import Prepared
from draftmill.rendering.round_trips import RoundTrip
from draftmill.rendering.specimens import Specimen
from draftmill.rendering.template import Refused

NEIGHBOURS = 3
"""Ids shown on each side of the first difference."""

NOT_OFFERED = "no such page: not compared"

RENDER_REMEDY = (
    "serve the recipe's tokenizer and chat template (--tokenizer-path, --chat-template), or give the recipe the "
    "server's (model.tokenizer, model.tokenizer_revision, model.chat_template, model.template_kwargs)"
)
TOOLS_REMEDY = (
    "nothing, when the keys of the tools stand in another order there: rows are rendered here; else serve the recipe's "
    "chat template"
)
SILENT_REMEDY = "see that this is the recipe's tokenizer; look at the server's log, or pass /tokenize on to it"
UNTAKEN_REMEDY = "see that the server's chat template is the recipe's: its /tokenize takes bare text only"


@dataclass(frozen=True, slots=True)
class Compared:
    """The three checks. `equal`: every conversation was compared, and has the same ids there."""

    checks: list[Check]
    equal: bool


async def token_checks(
    http: aiohttp.ClientSession,
    protocol: ModuleType,
    url: str,
    prepared: Prepared,
    *,
    model: str,
    patience: Patience = NOT_WAITING,
) -> Compared:
    """Specimens, markers and the highest id. Raises GateRefused when the key is refused."""
    server = _Server(http, protocol, url, model, patience.at_once())
    tokenizer, equal = await _specimens(server, prepared.specimens)
    markers = await _markers(server, prepared.round_trips)
    return Compared([tokenizer, markers, await _highest(server, prepared)], equal)


class _Server:
    """The two questions, asked of one server; nothing more once it does not answer, which the checks then say.

    `offers`: whether it has the page; `fault`: what came, try after try, instead of an answer about the text.
    """

    def __init__(
        self, http: aiohttp.ClientSession, protocol: ModuleType, url: str, model: str, patience: Patience
    ) -> None:
        self._http, self._protocol, self.url, self._model, self._patience = http, protocol, url, model, patience
        self.offers = True
        self.fault: Fault | None = None

    async def ids(self, specimen: Specimen) -> Ids | Fault | None:
        """Its ids of a conversation, its refusal to take it, or None."""
        return await self._asked(
            lambda: self._protocol.tokenize(
                self._http,
                self.url,
                specimen.messages,
                tools=specimen.tools,
                template_kwargs=specimen.template_kwargs,
                model=self._model,
            )
        )

    async def text_ids(self, text: str) -> Ids | Fault | None:
        """Its ids of a bare text, its refusal to take it, or None."""
        return await self._asked(lambda: self._protocol.tokenize_text(self._http, self.url, text, model=self._model))

    async def _asked(self, question: Callable[[], Awaitable[Ids | Fault | None]]) -> Ids | Fault | None:
        if not self.offers or self.fault is not None:
            return None
        found = await tried(question, self._patience)
        if isinstance(found, Fault) and found.kind is not FaultKind.REJECTED:
            self.fault = found
            return None
        self.offers = found is not None
        return found


async def _specimens(server: _Server, specimens: Sequence[Specimen]) -> tuple[Check, bool]:
    """The check, and whether every conversation was compared and is equal."""
    name, expected = "tokenizer", f"the same ids as here in {len(specimens)} conversations"
    asked = [(specimen, await server.ids(specimen)) for specimen in specimens]
    answers = [(specimen, theirs) for specimen, theirs in asked if theirs is not None]
    takes_none = bool(answers) and all(isinstance(theirs, Fault) for _, theirs in answers)
    if takes_none and isinstance(await server.text_ids("a"), np.ndarray):
        seen = f"takes no conversations, only text: not compared ({_words(answers[0][1])})"
        return Check(server.url, name, Level.WARN, seen, expected, UNTAKEN_REMEDY), False
    compared = _compared(server.url, answers, expected)
    if server.fault is not None and (takes_none or compared.level is Level.OK):
        seen = f"could not be compared: {server.fault.words}"
        return Check(server.url, name, Level.WARN, seen, expected, SILENT_REMEDY), False
    if not server.offers and compared.level is Level.OK:
        return Check(server.url, name, Level.OK, NOT_OFFERED, expected), False
    server.offers &= not takes_none  # who takes nothing at all need not be asked for the markers
    return compared, compared.level is Level.OK


def _words(theirs: Ids | Fault) -> str:
    return theirs.words if isinstance(theirs, Fault) else ""


def _compared(url: str, answers: Sequence[tuple[Specimen, Ids | Fault]], expected: str) -> Check:
    # A conversation that our template does not take is never sent: what the server would make of it does not matter.
    sent = [(specimen, theirs) for specimen, theirs in answers if not isinstance(specimen.ids, Refused)]
    found = {specimen: difference(specimen, theirs) for specimen, theirs in sent}
    differing = [specimen for specimen, words in found.items() if words is not None]
    if not differing:
        unsent = ", ".join(specimen.name for specimen, _ in answers if isinstance(specimen.ids, Refused))
        refused = f"; the template does not take: {unsent}" if unsent else ""
        return Check(url, "tokenizer", Level.OK, f"{len(sent)} equal{refused}", expected)
    # The first that is not the tools' alone: that is what must be seen to.
    first = min(differing, key=lambda specimen: specimen.tools is not None)
    more = f" (and in {len(differing) - 1} more)" if len(differing) > 1 else ""
    level, remedy = (Level.REFUSE, RENDER_REMEDY) if first.tools is None else (Level.WARN, TOOLS_REMEDY)
    return Check(url, "tokenizer", level, f"{first.name}: {found[first]}{more}", expected, remedy)


def difference(specimen: Specimen, theirs: Ids | Fault) -> str | None:
    """Where the server's ids leave ours, in words; None when they are one of the specimen's renderings. Pure."""
    if isinstance(theirs, Fault):
        return f"the server does not take it: {theirs.words}"
    ours = [ids for ids in specimen.renderings if not isinstance(ids, Refused)]
    if any(np.array_equal(ids, theirs) for ids in ours):
        return None
    return _first_difference(ours[0], theirs)


def _first_difference(ours: Ids, theirs: Ids) -> str:
    common = min(len(ours), len(theirs))
    unequal = np.flatnonzero(ours[:common] != theirs[:common])
    at = int(unequal[0]) if len(unequal) else common
    shown = slice(max(0, at - NEIGHBOURS), at + NEIGHBOURS + 1)
    lengths = f" ({len(ours)} ids here, {len(theirs)} there)" if len(ours) != len(theirs) else ""
    here, there = (_id_at(ids, at) for ids in (ours, theirs))
    around = f"here ... {ours[shown].tolist()}, there ... {theirs[shown].tolist()}"
    return f"id {at} is {here} here and {there} there{lengths}; {around}"


def _id_at(ids: Ids, at: int) -> str:
    return str(ids[at]) if at < len(ids) else "no id"


async def _markers(server: _Server, trips: Sequence[RoundTrip]) -> Check:
    """Every id the structure names: id to token to id here, and token to id on the server."""
    markers = [trip for trip in trips if trip.kind != "highest id"]
    wrong = [_broken(trip) for trip in markers if not trip.holds]
    asked = 0
    for trip in markers:
        theirs = await _alone(server, trip)
        asked += theirs is not None
        if theirs not in (None, [trip.id]):
            wrong.append(f"{trip.token!r}, which {trip.kind}, is {trip.id} here and {theirs} there")
    there = f", {asked} of them there" if asked else "; there: not compared"
    silent = f" ({server.fault.words})" if server.fault is not None else ""
    return check(
        server.url,
        "markers",
        not wrong and server.fault is None,
        seen="; ".join(wrong) if wrong else f"{len(markers)} here{there}{silent}",
        expected="every marker is one token, which maps to its id and back",
        remedy="serve the recipe's tokenizer, or correct model.tokenizer and sampling.stop_token_ids: the structure of "
        "the answers could not be read"
        if wrong
        else SILENT_REMEDY,
        level=Level.REFUSE if wrong else Level.WARN,
    )


def _broken(trip: RoundTrip) -> str:
    if trip.token is None:
        return f"{trip.id}, which {trip.kind}, is no token of the tokenizer"
    return f"{trip.id}, which {trip.kind}, is {trip.token!r}, and that is {trip.back}"


async def _alone(server: _Server, trip: RoundTrip) -> list[int] | str | None:
    """The server's ids of the token's text, or its words why it does not take it; None: nothing to compare."""
    if trip.alone is None:
        return None
    theirs = await server.text_ids(trip.alone)
    if isinstance(theirs, Fault):
        return theirs.words
    return None if theirs is None else [int(index) for index in theirs]


async def _highest(server: _Server, prepared: Prepared) -> Check:
    highest, vocabulary = prepared.structure.highest_id, prepared.vocabulary
    trip = next(trip for trip in prepared.round_trips if trip.id == highest)
    theirs = await _alone(server, trip)
    beyond = vocabulary is not None and highest >= vocabulary
    agrees = theirs is None or theirs == [highest]
    silent = f"; there: not compared ({server.fault.words})" if server.fault is not None else ""
    seen = f"{highest}; the model has {vocabulary or 'an unknown number of'} ids{silent}"
    needed = max((int(ids.max()) for each in prepared.specimens if not isinstance(ids := each.ids, Refused)), default=0)
    in_use = vocabulary is not None and max(needed, *_structure_ids(prepared)) >= vocabulary
    return check(
        server.url,
        "highest id",
        agrees and not beyond and server.fault is None,
        seen=seen if agrees else f"{trip.token!r} is {highest} here and {theirs} there",
        expected="an id the model has, and the server's tokenizer too",
        remedy=SILENT_REMEDY
        if agrees and not beyond
        else "an id beyond the model's vocabulary ends the server's engine, and a prompt's text may hold its token: "
        "take the model's own tokenizer (model.tokenizer), or set prompts.special_text: reject",
        level=Level.REFUSE if not agrees or in_use else Level.WARN,
    )


def _structure_ids(prepared: Prepared) -> tuple[int, ...]:
    structure = prepared.structure
    return (*structure.open_ids, *structure.close_ids, *structure.end_ids, *structure.foreign_ids, 0)
