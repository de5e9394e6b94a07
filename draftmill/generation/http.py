"""The one HTTP session of a run, without aiohttp's traps.

No total timeout (a long answer takes as long as it takes), no limit of 100
connections, idle connections dropped before the server drops them, credentials
from the environment only. A request tells its `trace_request_ctx` (a Flight)
whether it went over a kept connection.
"""

from __future__ import annotations

import os
from typing import Any

import aiohttp

from draftmill.errors import RecipeError
from draftmill.recipe import Engine

KEEPALIVE_S = 4.0
"""Seconds. SGLang closes idle connections after 5.0 s; a client that keeps them longer meets resets."""

CONNECT_TIMEOUT_S = 10.0
"""Seconds until a host that drops packets counts as refusing."""

SPARE_CONNECTIONS = 16
"""Beyond the requests in flight: health, aborts, canaries."""


def open_http(engine: Engine) -> aiohttp.ClientSession:
    """A session for all of the recipe's servers. Must be called on a running loop.

    Raises RecipeError when `api_key_env` names a variable that is not set or holds no key.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=engine.in_flight * len(engine.urls) + SPARE_CONNECTIONS, keepalive_timeout=KEEPALIVE_S
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        headers=_authorization(engine.api_key_env),
        trace_configs=[_tells_reuse()],
    )


def _tells_reuse() -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()

    async def note(_: aiohttp.ClientSession, context: Any, __: object) -> None:
        if (flight := context.trace_request_ctx) is not None:
            flight.reused = True

    config.on_connection_reuseconn.append(note)
    return config


def _authorization(name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    key = os.environ.get(name, "").strip()  # secrets mounted as files often end with a line break
    if not (key.isascii() and key.isprintable() and key):
        raise RecipeError(
            "engine.api_key_env names a variable that is not set, or that holds no key",
            value=name,
            expected="an environment variable that holds the server's key: printable ASCII on one line",
            remedy=f"export {name}=... where the run is started",
        )
    return {"Authorization": f"Bearer {key}"}
