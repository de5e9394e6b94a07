"""Does the server cut text into the same ids? Its own `/tokenize` against our rendering.

draftmill never asks a server to tokenize for a row: this is the proof that the
ids it sends mean to the model what they mean here. One difference refuses, with
the place and both sides' ids. Where a server has no such page nothing can be
compared, and the check says so.

No server tells the size of its vocabulary. What can be had of the highest id:
the config.json beside the tokenizer, and the server's id for its token.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import aiohttp
import numpy as np

from draftmill.arrays import Ids
from draftmill.gate.table import Check, Level, check
from draftmill.records import ServerReport
from draftmill.rendering.prepare import Prepared
from draftmill.rendering.round_trips import RoundTrip
from draftmill.rendering.specimens import Specimen
from draftmill.rendering.template import Refused

NEIGHBOURS = 3
"""Ids shown on each side of the first difference."""

NOT_OFFERED = "no such page: not compared"


async def token_checks(
    http: aiohttp.ClientSession, protocol: ModuleType, report: ServerReport, prepared: Prepared, *, model: str
) -> list[Check]:
    """Specimens, markers and the highest id. Raises GateRefused when the key is refused."""
    server = _Server(http, protocol, report.url, model)
    return [
        await _specimens(server, prepared.specimens),
        await _markers(server, prepared.round_trips),
        await _highest(server, prepared),
    ]


class _Server:
    """The two questions, asked of one server; a bare text only after a conversation got an answer (`offers`)."""

    def __init__(self, http: aiohttp.ClientSession, protocol: ModuleType, url: str, model: str) -> None:
        self._http, self._protocol, self.url, self._model = http, protocol, url, model
        self.offers = False

    async def ids(self, specimen: Specimen) -> Ids | str | None:
        found: Ids | str | None = await self._protocol.tokenize(
            self._http,
            self.url,
            specimen.messages,
            tools=specimen.tools,
            template_kwargs=specimen.template_kwargs,
            model=self._model,
        )
        self.offers = found is not None
        return found

    async def text_ids(self, text: str) -> Ids | str | None:
        if not self.offers:
            return None
        found: Ids | str | None = await self._protocol.tokenize_text(self._http, self.url, text, model=self._model)
        return found


async def _specimens(server: _Server, specimens: Sequence[Specimen]) -> Check:
    name, expected = "tokenizer", f"the same ids as here in {len(specimens)} conversations"
    differing: list[str] = []
    ours_refused: list[str] = []
    for specimen in specimens:
        theirs = await server.ids(specimen)
        if theirs is None:
            return check(server.url, name, True, seen=NOT_OFFERED, expected=expected, remedy="")
        if isinstance(specimen.ids, Refused):
            # No row of this kind is ever sent; what the server would make of it does not matter.
            ours_refused.append(specimen.name)
        elif words := difference(specimen, theirs):
            differing.append(f"{specimen.name}: {words}")
    equal = f"{len(specimens) - len(ours_refused)} equal"
    refused = f"; the template does not take: {', '.join(ours_refused)}" if ours_refused else ""
    more = f" (and in {len(differing) - 1} more)" if len(differing) > 1 else ""
    return check(
        server.url,
        name,
        not differing,
        seen=f"{differing[0]}{more}" if differing else equal + refused,
        expected=expected,
        remedy="serve the recipe's tokenizer and chat template (--tokenizer-path, --chat-template), or give the recipe "
        "the server's (model.tokenizer, model.tokenizer_revision, model.chat_template, model.template_kwargs)",
    )


def difference(specimen: Specimen, theirs: Ids | str) -> str | None:
    """Where the server's ids leave ours, in words; None when they are one of the specimen's renderings. Pure."""
    if isinstance(theirs, str):
        return f"the server does not take it: {theirs}"
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
    return check(
        server.url,
        "markers",
        not wrong,
        seen="; ".join(wrong) if wrong else f"{len(markers)} here{there}",
        expected="every marker is one token, which maps to its id and back",
        remedy="serve the recipe's tokenizer, or correct model.tokenizer and sampling.stop_token_ids: the structure of "
        "the answers could not be read",
    )


def _broken(trip: RoundTrip) -> str:
    if trip.token is None:
        return f"{trip.id}, which {trip.kind}, is no token of the tokenizer"
    return f"{trip.id}, which {trip.kind}, is {trip.token!r}, and that is {trip.back}"


async def _alone(server: _Server, trip: RoundTrip) -> list[int] | str | None:
    """The server's ids of the token's text; None where there is nothing to compare."""
    if trip.alone is None:
        return None
    theirs = await server.text_ids(trip.alone)
    return theirs if theirs is None or isinstance(theirs, str) else [int(index) for index in theirs]


async def _highest(server: _Server, prepared: Prepared) -> Check:
    highest, vocabulary = prepared.structure.highest_id, prepared.vocabulary
    trip = next(trip for trip in prepared.round_trips if trip.id == highest)
    theirs = await _alone(server, trip)
    beyond = vocabulary is not None and highest >= vocabulary
    agrees = theirs is None or theirs == [highest]
    seen = f"{highest}; the model has {vocabulary or 'an unknown number of'} ids"
    needed = max((int(ids.max()) for each in prepared.specimens if not isinstance(ids := each.ids, Refused)), default=0)
    in_use = vocabulary is not None and max(needed, *_structure_ids(prepared)) >= vocabulary
    return check(
        server.url,
        "highest id",
        agrees and not beyond,
        seen=seen if agrees else f"{trip.token!r} is {highest} here and {theirs} there",
        expected="an id the model has, and the server's tokenizer too",
        remedy="an id beyond the model's vocabulary ends the server's engine, and a prompt's text may hold its token: "
        "take the model's own tokenizer (model.tokenizer), or set prompts.special_text: reject",
        level=Level.REFUSE if not agrees or in_use else Level.WARN,
    )


def _structure_ids(prepared: Prepared) -> tuple[int, ...]:
    structure = prepared.structure
    return (*structure.open_ids, *structure.close_ids, *structure.end_ids, *structure.foreign_ids, 0)
