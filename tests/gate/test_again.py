"""A second look: the same server, not yet, or another one. Never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftmill.engines import sglang
from draftmill.gate import look_again
from draftmill.generation.http import open_http
from draftmill.records import Return, Returned, ServerReport
from draftmill.serving.faults import Fault, always
from draftmill.serving.protocol import Limits


@pytest.fixture
def looked(variants_for: Any, recipe_for: Any) -> Any:
    """`await looked(url, before, weights=...)`; `before` None: as it says now."""

    async def look(url: str, before: ServerReport | None = None, *, weights: str = "stop") -> Returned:
        recipe = recipe_for(url, engine__weights=weights)
        async with open_http(recipe.engine) as http:
            known = before or await sglang.report(http, url, model=recipe.model.name)
            return await look_again(recipe, variants_for(recipe), known, protocol=sglang, http=http)

    return look


@pytest.fixture
def before(server: Any) -> Any:
    """The report of a server as it was, at the URL it has now."""

    async def report(url: str, **card: Any) -> ServerReport:
        import aiohttp

        async with server(card=card) as fake, aiohttp.ClientSession() as http:
            return replace(await sglang.report(http, fake.url, model=""), url=url)

    return report


async def test_the_same_server_is_the_same(server: Any, looked: Any) -> None:
    async with server() as fake:
        seen = await looked(fake.url)
    assert (seen.state, len(fake.log)) == (Return.SAME, 1)
    assert seen.report.engine == "sglang 0.5.23"


async def test_other_weights_are_another_server_unless_they_are_recorded(server: Any, looked: Any, before: Any) -> None:
    async with server(card={"weight_version": "w2"}) as fake:
        was = await before(fake.url)
        stopped = await looked(fake.url, was)
        assert not fake.log
        recorded = await looked(fake.url, was, weights="record")
    assert (stopped.state, stopped.words) == (Return.OTHER, "weight version was default and is w2")
    assert recorded.state is Return.SAME
    assert recorded.report.weight_version == "w2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"card": {"model": "another"}}, "model was smol and is another"),
        ({"limits": Limits(4096, 49152)}, "context length was 2048 and is 4096"),
        ({"card": {"reasoning_parser": "kimi_k2"}}, "reasoning parser: kimi_k2"),
        ({"limits": Limits(2048, 49152, auto_truncate=True)}, "auto truncate: True"),
    ],
)
async def test_what_the_gate_would_refuse_is_another_server(
    server: Any, looked: Any, before: Any, options: dict[str, Any], words: str
) -> None:
    async with server(**options) as fake:
        seen = await looked(fake.url, await before(fake.url), weights="record")
    assert seen.state is Return.OTHER
    assert words in seen.words
    assert not fake.log


async def test_a_server_that_is_not_there_is_not_yet(server: Any, looked: Any, before: Any) -> None:
    async with server() as fake:
        pass
    seen = await looked(fake.url, await before(fake.url))
    assert (seen.state, seen.report) == (Return.NOT_YET, None)
    assert "Connection refused" in seen.words


async def test_a_loading_server_is_not_yet_and_not_waited_for(server: Any, looked: Any, before: Any) -> None:
    async with server(loading_s=1e9) as fake:
        seen = await looked(fake.url, await before(fake.url))
    assert (seen.state, seen.words) == (Return.NOT_YET, "/health answers 503")


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("fault", [Fault.ERROR_500, Fault.RESET_BEFORE, Fault.UNAVAILABLE, Fault.WRONG_ECHO], ids=str)
async def test_a_canary_that_fails_is_not_yet(server: Any, looked: Any, fault: Fault) -> None:
    async with server(rule=always(fault)) as fake:
        seen = await looked(fake.url)
    assert seen.state is Return.NOT_YET
    assert seen.words.startswith("its canary: ")


async def test_a_key_that_is_refused_is_not_yet(server: Any, looked: Any, before: Any) -> None:
    async with server(card={"api_key": "sekret"}) as fake:
        seen = await looked(fake.url, await before(fake.url))
    assert seen.state is Return.NOT_YET
    assert "refuses the key" in seen.words


async def test_pages_that_break_off_are_not_yet(
    server: Any, looked: Any, before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server() as fake:
        was = await before(fake.url)

        async def broken(*_: object, **__: object) -> ServerReport:
            raise ConnectionResetError("by peer")

        monkeypatch.setattr(sglang, "report", broken)
        seen = await looked(fake.url, was)
    assert (seen.state, seen.words) == (Return.NOT_YET, "ConnectionResetError: by peer")
