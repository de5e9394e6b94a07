"""One request and what came of it: an answer, or the fault it is. Never an exception of the network."""

from __future__ import annotations

import time
from types import ModuleType

import aiohttp

from draftmill.generation.servers import Flight
from draftmill.reach import no_connection
from draftmill.records import Answer, Fault, FaultKind

JSON = {"Content-Type": "application/json"}

STALE_WITHIN_S = 1.0
"""Seconds. A kept connection that the server had closed says so at once; later it is an engine that died."""


async def exchange(
    http: aiohttp.ClientSession, protocol: ModuleType, flight: Flight, body: bytes, *, url: str, engine: str
) -> Answer | Fault:
    """Posts `body` to the server at `url` and reads the answer to `flight.sent`; `http` is of `open_http`."""
    answer: aiohttp.ClientResponse | None = None
    try:
        # A redirect would make a GET of it, or show the key to another host.
        async with http.post(
            url + protocol.GENERATE, data=body, headers=JSON, allow_redirects=False, trace_request_ctx=flight
        ) as answer:
            content = await answer.read()
    except aiohttp.ClientConnectorError as error:
        return Fault(FaultKind.CONNECT, no_connection(error))
    except TimeoutError:  # the only timeout is that of connecting
        return Fault(FaultKind.CONNECT, "no connection: not accepted in time")
    except (aiohttp.ClientError, OSError) as error:
        at_once = time.monotonic() - flight.sent_s < STALE_WITHIN_S
        kind = FaultKind.STALE if flight.reused and answer is None and at_once else FaultKind.RESET
        return Fault(kind, f"{type(error).__name__}: {error}")
    result: Answer | Fault = protocol.read(
        answer.status, answer.headers, content, row=flight.sent, rid=flight.rid, engine=engine
    )
    return result
