"""A server's tokenizer that refuses, or breaks: what says something of the text refuses, what says nothing warns."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from draftmill.engines import vllm
from draftmill.gate.table import Level
from draftmill.gate.tokens import token_checks
from draftmill.gate.tries import TRIES
from draftmill.rendering.prepare import Prepared
from draftmill.serving.vllm_fake import VllmFake

Body = dict[str, Any]


class _TooMany(web.HTTPError):
    status_code = 429


KINDS: dict[int, type[web.HTTPError]] = {
    400: web.HTTPBadRequest,
    422: web.HTTPUnprocessableEntity,
    429: _TooMany,
    500: web.HTTPInternalServerError,
    502: web.HTTPBadGateway,
    503: web.HTTPServiceUnavailable,
}


def refuses(status: int, *, typed: bool = True) -> web.HTTPException:
    """What the page raises to answer with this status: in the engine's JSON, or a proxy's page."""
    text = json.dumps({"error": {"message": "no messages"}}) if typed else "<html>"
    return KINDS[status](text=text, content_type="application/json" if typed else "text/html")


@pytest.mark.parametrize("status", [400, 422])
async def test_a_page_that_takes_text_only_warns_and_its_markers_are_compared(
    checks_of: Any, tokenizes: Any, status: int
) -> None:
    def page(body: Body) -> Any:
        if "messages" in body:
            raise refuses(status)
        return tokenizes(body)

    seen = await checks_of(page)
    assert [each.level for each in seen.values()] == [Level.WARN, Level.OK, Level.OK]
    assert "only text: not compared" in seen["tokenizer"].seen
    assert f"HTTP {status}: no messages" in seen["tokenizer"].seen
    assert "of them there" in seen["markers"].seen


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_template_that_refuses_one_conversation_refuses(checks_of: Any, tokenizes: Any, status: int) -> None:
    def page(body: Body) -> Any:
        if body.get("messages", [{}])[0].get("role") == "system":
            raise refuses(status)
        return tokenizes(body)

    seen = (await checks_of(page))["tokenizer"]
    assert seen.level is Level.REFUSE
    assert seen.seen == f"system: the server does not take it: HTTP {status}: no messages"


async def test_a_server_of_another_model_is_not_asked_for_the_markers(tokenizes: Any, prepared: Prepared) -> None:
    async with VllmFake(model="other", tokenizer=tokenizes) as fake, aiohttp.ClientSession() as http:
        compared = await token_checks(http, vllm, fake.url, prepared, model="smol")
    tokenizer, markers, highest = compared.checks
    assert [each.level for each in compared.checks] == [Level.REFUSE, Level.OK, Level.OK]
    assert "HTTP 404: The model `smol` does not exist" in tokenizer.seen
    assert "there: not compared" in markers.seen
    assert "there" not in highest.seen


ACCIDENTS = [(429, True), (502, True), (502, False), (503, True), (503, False), (500, False), (400, False)]


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(("status", "typed"), ACCIDENTS)
@pytest.mark.parametrize("number", [0, 3, 7, 9, -1])
async def test_one_accident_does_not_cost_a_night(
    checks_of: Any, tokenizes: Any, prepared: Prepared, number: int, status: int, typed: bool
) -> None:
    """Any of the questions, the last included; `number` counts them."""
    asked: list[Body] = []

    def page(body: Body) -> Any:
        asked.append(body)
        if len(asked) - 1 == bad:
            raise refuses(status, typed=typed)
        return tokenizes(body)

    bad = -1
    await checks_of(page)
    bad = number % len(asked)
    asked.clear()
    assert {each.level for each in (await checks_of(page)).values()} == {Level.OK}


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(("status", "typed"), ACCIDENTS)
@pytest.mark.parametrize("good", [0, 5, 9])
async def test_a_page_that_stays_broken_warns_and_is_left_alone(
    checks_of: Any, tokenizes: Any, prepared: Prepared, good: int, status: int, typed: bool
) -> None:
    """`good`: so many questions are answered first."""
    asked: list[Body] = []

    def page(body: Body) -> Any:
        asked.append(body)
        if len(asked) > good:
            raise refuses(status, typed=typed)
        return tokenizes(body)

    seen = await checks_of(page)
    assert len(asked) == good + TRIES
    levels = [each.level for each in seen.values()]
    compared = good >= len(prepared.specimens)
    assert levels == [Level.OK if compared else Level.WARN, Level.WARN, Level.WARN]
    assert f"HTTP {status}" in seen["markers" if compared else "tokenizer"].seen
    assert all(bool(each.remedy) is (each.level is Level.WARN) for each in seen.values())


@pytest.mark.usefixtures("no_pause")
async def test_a_difference_seen_before_the_page_broke_refuses(checks_of: Any, tokenizes: Any) -> None:
    asked: list[Body] = []

    def page(body: Body) -> Any:
        asked.append(body)
        if len(asked) > 2:
            raise refuses(503)
        return [9, *tokenizes(body)]

    assert (await checks_of(page))["tokenizer"].level is Level.REFUSE


@pytest.mark.usefixtures("no_pause")
async def test_refusals_before_the_page_broke_are_not_a_refusal_of_all(checks_of: Any, tokenizes: Any) -> None:
    """Takes it no conversations, or not this one? That the page broke leaves it open."""
    talks = 0

    def page(body: Body) -> Any:
        nonlocal talks
        talks += "messages" in body
        if talks > 2:
            raise refuses(503)
        if "messages" in body:
            raise refuses(400)
        return tokenizes(body)

    seen = (await checks_of(page))["tokenizer"]
    assert seen.level is Level.WARN
    assert "HTTP 503" in seen.seen
