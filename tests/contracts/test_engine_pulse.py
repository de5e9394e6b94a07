"""Is a server there, is it alive: every engine on the shelf, against real loopback servers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from draftmill.engines import _pages
from draftmill.records import Life, Pulse

SECRET = "sekret"
"""The key of the session."""


async def test_readiness_is_told_in_words(engine: Any, http: Any, serving: Any, answering: Any) -> None:
    async with serving({"/health": answering(200)}) as url:
        assert await engine.door.is_ready(http, url) is None
    assert "Connection refused" in await engine.door.is_ready(http, url)
    async with serving({"/health": answering(503)}) as url:
        assert await engine.door.is_ready(http, url) == "/health answers 503"
    async with serving({"/health": answering(302, headers={"Location": "/login"}), "/login": answering(200)}) as url:
        assert await engine.door.is_ready(http, url) == "/health answers 302"


async def never(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    return web.Response()


async def test_a_health_that_never_answers_is_not_ready(engine: Any, http: Any, monkeypatch: Any, serving: Any) -> None:
    monkeypatch.setattr(engine.door, "HEALTH_TIMEOUT_S", 0.05)
    async with serving({"/health": never}) as url:
        assert "does not answer" in await engine.door.is_ready(http, url)


async def pulse_of(engine: Any, http: Any, url: str) -> Pulse:
    pulse = await engine.door.pulse(http, url)
    assert isinstance(pulse, Pulse)
    assert pulse.words
    return pulse


async def test_a_server_that_says_200_is_alive(engine: Any, http: Any, serving: Any, answering: Any) -> None:
    async with serving({"/health": answering(200)}) as url:
        assert (await pulse_of(engine, http, url)).life is Life.ALIVE


@pytest.mark.parametrize("status", [302, 404, 500, 502, 503])
async def test_a_server_that_says_no_at_once_is_leaving(
    engine: Any, http: Any, status: int, serving: Any, answering: Any
) -> None:
    async with serving({"/health": answering(status)}) as url:
        assert (await pulse_of(engine, http, url)).life is Life.LEAVING


async def test_a_server_that_says_no_late_is_stuck(
    engine: Any, http: Any, monkeypatch: Any, serving: Any, answering: Any
) -> None:
    monkeypatch.setattr(_pages, "AT_ONCE_S", 0.0)
    async with serving({"/health": answering(503)}) as url:
        assert (await pulse_of(engine, http, url)).life is Life.STUCK


async def test_a_server_that_does_not_answer_is_stuck(engine: Any, http: Any, monkeypatch: Any, serving: Any) -> None:
    monkeypatch.setattr(engine.door, "HEALTH_TIMEOUT_S", 0.05)
    async with serving({"/health": never}) as url:
        assert (await pulse_of(engine, http, url)).life is Life.STUCK


async def test_a_server_that_hangs_up_is_stuck(engine: Any, http: Any, serving: Any) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving({"/health": hang_up}) as url:
        assert (await pulse_of(engine, http, url)).life is Life.STUCK


async def test_a_port_that_refuses_is_closed(engine: Any, http: Any, serving: Any) -> None:
    async with serving({}) as url:
        pass
    assert (await pulse_of(engine, http, url)).life is Life.CLOSED


async def test_a_port_that_drops_packets_is_closed(engine: Any, http: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(_pages, "CONNECT_S", 0.05)

    async def dropped(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(aiohttp.TCPConnector, "connect", dropped)
    assert (await pulse_of(engine, http, "http://127.0.0.1:9")).life is Life.CLOSED


async def test_our_own_lack_of_sockets_is_not_the_servers_death(engine: Any, http: Any, monkeypatch: Any) -> None:
    def no_socket(*_: object, **__: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", no_socket)
    pulse = await pulse_of(engine, http, "http://127.0.0.1:9")
    assert pulse.life is Life.ALIVE
    assert "Too many open files" in pulse.words


async def test_a_pulse_takes_a_new_connection_and_the_key(engine: Any, http: Any, serving: Any) -> None:
    seen: list[tuple[Any, str | None]] = []

    async def look(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append((request.transport.get_extra_info("peername"), request.headers.get("Authorization")))
        return web.Response()

    async with serving({"/health": look}) as url:
        for _ in range(2):
            async with http.get(f"{url}/health") as answer:
                await answer.read()
        await pulse_of(engine, http, url)
        await pulse_of(engine, http, url)
    kept, again, first, second = seen
    assert kept == again  # the session has an idle connection to that server
    assert len({kept[0], first[0], second[0]}) == 3
    assert {key for _, key in seen} == {f"Bearer {SECRET}"}


async def test_a_closed_port_is_seen_beside_a_connection_that_still_works(
    engine: Any, http: Any, answering: Any
) -> None:
    """vLLM after a SIGTERM: what is open stays open, for ever."""
    app = web.Application()
    app.add_routes([web.get("/health", answering(200))])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    assert await engine.door.is_ready(http, url) is None
    assert site._server is not None
    site._server.close()
    assert await engine.door.is_ready(http, url) is None  # over the kept connection
    assert (await pulse_of(engine, http, url)).life is Life.CLOSED
    await runner.cleanup()
