"""The fake server's faults on the wire: answers of proxies, resets, silence, broken bodies."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import orjson
from aiohttp import web

from draftmill.serving.faults import Act, Fault
from draftmill.serving.refusals import INTERNAL_ERROR, QUEUE_FULL

SETTLE_S = 0.05
"""Time for bytes to reach the client before the connection is reset; a reset may destroy what was not read yet."""

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with zero seconds: closing sends RST instead of FIN."""

GATEWAY_PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"

RESETS = frozenset({Fault.RESET_BEFORE, Fault.RESET_REUSED})

INSTEAD = RESETS | {Fault.ERROR_500, Fault.BAD_GATEWAY, Fault.UNAVAILABLE, Fault.RATE_LIMITED, Fault.HANG}
"""Faults that come instead of an answer: nothing is generated."""


async def instead(http: web.Request, act: Act) -> web.StreamResponse:
    """Does a fault of INSTEAD."""
    if act.fault is Fault.HANG:
        await asyncio.Event().wait()
    if act.fault in RESETS:
        return _reset(http)
    if act.fault is Fault.BAD_GATEWAY:
        return web.Response(status=502, text=GATEWAY_PAGE, content_type="text/html")
    if act.fault is Fault.RATE_LIMITED:
        return web.Response(status=429, text="Too Many Requests", headers={"Retry-After": str(act.amount)})
    return (QUEUE_FULL if act.fault is Fault.UNAVAILABLE else INTERNAL_ERROR).response()


async def send(http: web.Request, body: dict[str, Any], fault: Fault | None) -> web.StreamResponse:
    """Sends an answer's body as JSON, in the way the fault says; None sends it well."""
    if fault is Fault.FOREIGN_JSON:
        return web.json_response({"choices": [{"text": "another server's answer"}]})
    data = orjson.dumps(body)
    if fault is Fault.TRUNCATED_JSON:
        return web.Response(body=data[: len(data) // 2], content_type="application/json")
    if fault not in (Fault.RESET_MIDWAY, Fault.RESET_AFTER):
        return web.Response(body=data, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(data))})
    await response.prepare(http)
    await response.write(data[: len(data) // 2] if fault is Fault.RESET_MIDWAY else data)
    await asyncio.sleep(SETTLE_S)
    _reset(http)
    return response


def _reset(http: web.Request) -> web.StreamResponse:
    """Ends the connection with a TCP reset; the response returned is never sent."""
    transport = http.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        transport.abort()
    return web.Response()
