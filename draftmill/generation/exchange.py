"""One request and what came of it: an answer, or the fault it is. Never an exception of the network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Protocol

import aiohttp

from draftmill.generation.servers import Flight, Server
from draftmill.reach import no_connection
from draftmill.recipe import Recipe, Sampling
from draftmill.records import Answer, Fault, FaultKind
from draftmill.redaction import redacted, sent_key

JSON = {"Content-Type": "application/json"}

STALE_WITHIN_S = 1.0
"""Seconds. A kept connection that the server had closed says so at once; later it is an engine that died."""


async def answer_of(
    server: Server,
    flight: Flight,
    *,
    http: aiohttp.ClientSession,
    protocol: ModuleType,
    recipe: Recipe,
    sampling: Sampling,
) -> Answer | Fault:
    """The answer to a flight, or its fault; also when it is given up meanwhile, or answered by other weights.

    `sampling`: of the row's variant.
    """
    body = protocol.payload(flight.sent, sampling, rid=flight.rid, model=recipe.model.name)
    try:
        result = await exchange(http, protocol, flight, body, url=server.url, engine=server.report.engine)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if flight.given_up is None or task is None or task.uncancel():
            raise
        return Fault(FaultKind.UNANSWERED, flight.given_up)
    if isinstance(result, Answer) and (words := _other_weights(server, result, recipe)):
        return Fault(FaultKind.OTHER_WEIGHTS, words)
    return result


def _other_weights(server: Server, answer: Answer, recipe: Recipe) -> str | None:
    expected = server.report.weight_version
    if recipe.engine.weights == "record" or None in (expected, answer.weight_version):
        return None
    return None if answer.weight_version == expected else f"{answer.weight_version!r}, not {expected!r}"


async def exchange(
    http: aiohttp.ClientSession, protocol: ModuleType, flight: Flight, body: bytes, *, url: str, engine: str
) -> Answer | Fault:
    """Posts `body` to the server at `url` and reads the answer to `flight.sent`; `http` is of `open_http`.

    The session's key is never in a fault's words: error pages and proxies quote what they were sent.
    """
    result = await _exchange(http, protocol, flight, body, url, engine)
    if isinstance(result, Fault):
        return replace(result, words=redacted(result.words, sent_key(http)))
    return result


async def _exchange(
    http: aiohttp.ClientSession, protocol: ModuleType, flight: Flight, body: bytes, url: str, engine: str
) -> Answer | Fault:
    got = await post(http, url + protocol.GENERATE, body, sent=flight)
    if isinstance(got, Fault):
        return got
    result: Answer | Fault = protocol.read(*got, row=flight.sent, rid=flight.rid, engine=engine)
    return result


class Sent(Protocol):
    """What a request knows of itself: when it went out (monotonic seconds), and whether over a kept connection."""

    sent_s: float
    reused: bool


async def post(
    http: aiohttp.ClientSession, url: str, body: bytes, *, sent: Sent
) -> tuple[int, Mapping[str, str], bytes] | Fault:
    """Status, headers and body of what comes back, or the network's fault. The fault may quote the session's key."""
    answer: aiohttp.ClientResponse | None = None
    try:
        # A redirect would make a GET of it, or show the key to another host.
        async with http.post(url, data=body, headers=JSON, allow_redirects=False, trace_request_ctx=sent) as answer:
            content = await answer.read()
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError) as error:
        return Fault(FaultKind.CONNECT, no_connection(error))
    except TimeoutError:  # the only timeout is that of connecting
        return Fault(FaultKind.CONNECT, "no connection: not accepted in time")
    except (aiohttp.ClientError, OSError) as error:
        at_once = time.monotonic() - sent.sent_s < STALE_WITHIN_S
        kind = FaultKind.STALE if sent.reused and answer is None and at_once else FaultKind.RESET
        return Fault(kind, f"{type(error).__name__}: {error}")
    return answer.status, answer.headers, content
