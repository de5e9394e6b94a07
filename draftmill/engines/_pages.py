"""The pages of a server beside the one that generates: information and health.

Why apart: every engine has them, and how a page fails does not depend on the
engine. What an information page fails at is the gate's affair (GateRefused,
with a remedy); what a look at a silent server finds is a Life, never an
exception.

Redirects are not followed: they would show the key to another host.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson

from draftmill.engines._wire import line
from draftmill.errors import GateRefused
from draftmill.reach import no_connection
from draftmill.records import Life, Pulse

SHORT = aiohttp.ClientTimeout(total=10)
"""Seconds for a page that is answered without generating."""

CONNECT_S = 10.0
"""Seconds until a host that drops packets counts as refusing."""

AT_ONCE_S = 10.0
"""Seconds. A server that drains or loads says so at once; one that is stuck needs its whole time (SGLang: 20 s)."""

OUR_OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Errors of this machine: no connection could be opened, which says nothing about the server."""


async def page(http: aiohttp.ClientSession, url: str, *paths: str, engine: str) -> dict[str, Any]:
    """The JSON object of the first path that has one. Raises GateRefused, in `engine`'s name, when none has."""
    seen = ""
    for path in paths:
        try:
            async with http.get(url + path, timeout=SHORT, allow_redirects=False) as answer:
                check_key(url, answer.status, path)
                seen = f"HTTP {answer.status} from {path}"
                data = orjson.loads(await answer.read()) if answer.status == 200 else None
                if isinstance(data, dict):
                    return data
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            seen = f"{type(error).__name__} from {path}"
    raise not_this_engine(url, engine, seen, f"JSON from {paths[0]}")


def not_this_engine(url: str, engine: str, seen: str, expected: str) -> GateRefused:
    """The error for a server that does not answer as `engine` does."""
    return GateRefused(
        f"{url} does not answer as {engine} does",
        value=seen,
        expected=expected,
        remedy="correct engine.urls or engine.kind; a router in front must pass these paths on",
    )


def check_key(url: str, status: int, path: str) -> None:
    """Raises GateRefused when `status` says that the key is refused."""
    if status in (401, 403):
        raise GateRefused(
            f"{url} refuses the key",
            value=f"HTTP {status} from {path}",
            expected="HTTP 200",
            remedy="set engine.api_key_env to the name of the environment variable that holds the key",
        )


def listed_model(models: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    """The model of `/v1/models` with this id, else the first: a server may have several names and adapters."""
    data = models.get("data")
    listed = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    named = (each for each in listed if each.get("id") == name)
    return next(named, listed[0] if listed else {})


async def readiness(http: aiohttp.ClientSession, url: str, *, patience_s: float) -> str | None:
    """None when `/health` says 200 within `patience_s`, else what was seen instead (refused, loading, stuck)."""
    timeout = aiohttp.ClientTimeout(total=patience_s)
    try:
        async with http.get(f"{url}/health", timeout=timeout, allow_redirects=False) as answer:
            return None if answer.status == 200 else f"/health answers {answer.status}"
    except TimeoutError:
        return f"/health does not answer within {patience_s:.0f} s"
    except aiohttp.ClientConnectorError as error:
        return no_connection(error)
    except (aiohttp.ClientError, OSError) as error:
        return line(str(error)) or type(error).__name__


@contextlib.asynccontextmanager
async def afresh(http: aiohttp.ClientSession) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with the key of `http` and none of its connections: a kept one answers after the port is closed."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector, headers=http.headers) as session:
        yield session


async def health(http: aiohttp.ClientSession, url: str, *, patience_s: float) -> Pulse:
    """What `/health` shows of a server that has been silent. `http` must hold no connections (`afresh`)."""
    timeout = aiohttp.ClientTimeout(total=patience_s, sock_connect=CONNECT_S)
    started_s = time.monotonic()
    try:
        async with http.get(f"{url}/health", timeout=timeout, allow_redirects=False) as answer:
            status, took_s = answer.status, time.monotonic() - started_s
    except aiohttp.ConnectionTimeoutError:
        return Pulse(Life.CLOSED, f"accepts no connection within {CONNECT_S:.0f} s")
    except aiohttp.ClientConnectorError as error:
        # Not the server's doing: nothing in flight may be given up for it.
        life = Life.ALIVE if error.os_error.errno in OUR_OWN_LIMITS else Life.CLOSED
        return Pulse(life, no_connection(error))
    except TimeoutError:
        return Pulse(Life.STUCK, f"/health does not answer within {patience_s:.0f} s")
    except (aiohttp.ClientError, OSError) as error:
        return Pulse(Life.STUCK, line(f"/health: {type(error).__name__}: {error}"))
    if status == 200:
        return Pulse(Life.ALIVE, "/health answers 200")
    return Pulse(Life.LEAVING if took_s <= AT_ONCE_S else Life.STUCK, f"/health answers {status} after {took_s:.0f} s")
