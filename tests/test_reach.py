"""Why there is no connection, in words that help."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from draftmill.reach import no_connection


async def words_of(url: str, **options: Any) -> str:
    async with aiohttp.ClientSession() as http:
        with pytest.raises((aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError)) as failed:
            await http.get(url, **options)
    return no_connection(failed.value)


async def test_a_port_that_refuses() -> None:
    assert await words_of(f"http://127.0.0.1:{unused_port()}") == "no connection: Connection refused"


async def test_a_host_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise OSError("no such host")

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", unknown)
    assert "no such host" in await words_of("http://nowhere.invalid")


async def test_https_to_a_port_that_speaks_http_is_no_matter_of_permissions() -> None:
    app = web.Application()
    async with TestServer(app) as server:
        words = await words_of(f"https://127.0.0.1:{server.port}", ssl=ssl.create_default_context())
    assert "permitted" not in words
    assert "ssl" in words.lower()
