"""A sentinel key through everything the gate makes, with servers that quote it wherever they can."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from draftmill.engines import sglang
from draftmill.gate import Gate, Level, look_again
from draftmill.generation.http import open_http
from draftmill.records import Return
from draftmill.reporting import terminal

KEY = "sk-sentinel-4711"
VARIABLE = "DRAFTMILL_TEST_GATE_KEY"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)


def everything(seen: Gate, capsys: pytest.CaptureFixture[str]) -> str:
    """All that a gate's result becomes: artifact, receipt, error, table, JSON."""
    terminal.print_gate(seen.checks, as_json=True)
    printed = capsys.readouterr()
    texts = [repr(seen), printed.out, printed.err, json.dumps([asdict(check) for check in seen.checks])]
    texts.append(json.dumps([asdict(report) for report in seen.reports]))
    with contextlib.suppress(Exception):
        seen.refuse()
    try:
        seen.refuse()
    except Exception as error:
        texts += [str(error), repr(error)]
    return "\n".join(texts)


@contextlib.asynccontextmanager
async def quoting(status: int, *, pages: dict[str, Any]) -> AsyncIterator[str]:
    """A proxy that answers `pages` by path, and quotes the request's headers in everything else."""

    async def answer(request: web.Request) -> web.Response:
        if request.path in pages:
            return web.json_response(pages[request.path])
        quoted = f"bad request with {dict(request.headers)}"
        return web.json_response({"error": {"message": quoted}}, status=status, reason="Bad " + KEY)

    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", answer)])
    async with TestServer(app) as running:
        yield str(running.make_url("")).rstrip("/")


INFO = {
    "version": f"0.5.23 {KEY}",
    "served_model_name": f"smol {KEY}",
    "weight_version": KEY,
    "model_path": f"/models/{KEY}",
    "preferred_sampling_params": {KEY: KEY},
    "notes": [KEY, {KEY: [KEY]}],
    "api_key": KEY,
    "reasoning_parser": KEY,
    "speculative_algorithm": KEY,
    "speculative_accept_threshold_single": 0.5,
    "launch_command": f"--api-key {KEY}",
}
PAGES = {"/health": {}, "/server_info": INFO, "/model_info": INFO, "/v1/models": {"data": [{"id": KEY}]}}


async def test_the_right_key_passes_and_is_nowhere(
    server: Any, inspected: Any, tokenizes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with server(card={"api_key": KEY}, tokenizer=tokenizes) as fake:
        seen = await inspected(fake.url, engine__api_key_env=VARIABLE)
    assert {check.level for check in seen.checks} == {Level.OK}
    assert KEY not in everything(seen, capsys)


@pytest.mark.parametrize("variable", [None, VARIABLE])
async def test_a_refused_key_names_the_remedy_and_not_the_key(
    server: Any, inspected: Any, refusal: Any, capsys: pytest.CaptureFixture[str], variable: str | None
) -> None:
    async with server(card={"api_key": "another"}) as fake:
        seen = await inspected(fake.url, engine__api_key_env=variable)
    error = refusal(seen)
    assert "refuses the key" in str(error.value)
    assert "engine.api_key_env" in error.remedy
    assert KEY not in everything(seen, capsys)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 503])
@pytest.mark.parametrize("pages", [{}, PAGES, {"/health": {}}], ids=["nothing", "pages", "health"])
async def test_a_server_that_quotes_the_key(
    inspected: Any, capsys: pytest.CaptureFixture[str], status: int, pages: dict[str, Any]
) -> None:
    async with quoting(status, pages=pages) as url:
        seen = await inspected(url, engine__api_key_env=VARIABLE)
    assert seen.refusals
    assert KEY not in everything(seen, capsys)


@pytest.mark.parametrize("pages", [{}, PAGES])
async def test_a_second_look_does_not_tell_it_either(
    recipe_for: Any, variants_for: Any, recorded_report: Any, pages: dict[str, Any]
) -> None:
    async with quoting(500, pages=pages) as url:
        recipe = recipe_for(url, engine__api_key_env=VARIABLE)
        async with open_http(recipe.engine) as http:
            seen = await look_again(recipe, variants_for(recipe), recorded_report(url), protocol=sglang, http=http)
    assert seen.state is not Return.SAME
    assert KEY not in repr(seen)


async def test_a_key_in_the_models_name_is_sent_in_it_and_the_server_is_known_again(
    server: Any, inspected: Any, recipe_for: Any, variants_for: Any, tokenizes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder called like the key: it is redacted where it is kept, not where it is compared or sent."""
    asked: list[dict[str, Any]] = []

    def page(body: dict[str, Any]) -> list[int]:
        asked.append(body)
        return list(tokenizes(body))

    named = {"model__name": f"models/{KEY}", "engine__api_key_env": VARIABLE}
    async with server(card={"api_key": KEY, "model": f"models/{KEY}"}, tokenizer=page) as fake:
        seen = await inspected(fake.url, **named)
        recipe = recipe_for(fake.url, **named)
        async with open_http(recipe.engine) as http:
            again = await look_again(recipe, variants_for(recipe), seen.reports[0], protocol=sglang, http=http)
    assert {check.level for check in seen.checks} == {Level.OK}
    assert KEY not in everything(seen, capsys)
    assert (again.state, again.report) == (Return.SAME, seen.reports[0])
    assert {body["model"] for body in asked} == {f"models/{KEY}"}


async def test_a_key_that_is_a_mere_word_does_not_spoil_the_report(
    server: Any, inspected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "default")
    async with server(card={"api_key": "default", "weight_version": "default"}) as fake:
        seen = await inspected(fake.url, engine__api_key_env=VARIABLE)
    assert seen.reports[0].weight_version == "default"
