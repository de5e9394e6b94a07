"""What one row, one request or one server meets must not stop the others; and what all meet must stop the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from draftmill.errors import RunStopped
from draftmill.generation import pace, retry
from draftmill.records import Completion, Reason, Return, Returned, Row, ServerReport
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.faults import Act, Fault, always
from draftmill.serving.protocol import GenerateRequest

Rows = Callable[..., list[Row]]


def of_prompt(first_id: int, act: Act | Fault) -> Callable[[int, GenerateRequest], Act | Fault | None]:
    return lambda number, request: act if request.prompt_ids[0] == first_id else None


@pytest.mark.parametrize("act", [Fault.UNAVAILABLE, Act(Fault.RATE_LIMITED, 0)], ids=["503", "429"])
@pytest.mark.parametrize("place", [0, 30, 59])
async def test_a_row_that_is_always_refused_does_not_starve_the_others(
    a_run: Any, rows_of: Rows, monkeypatch: pytest.MonkeyPatch, act: Act | Fault, place: int
) -> None:
    monkeypatch.setattr(retry, "REFUSALS", 3)
    rows = rows_of(60)
    async with FakeServer(rule=of_prompt(1000 + place, act)) as fake, a_run(fake.url, wait_s=1) as run:
        asked = await run.pool.ask(rows, chunk=1)
    assert len(asked.completions) == 59
    # It fails by name, or, when nobody is left whose answers would show that it is the row, the run ends without it.
    left = [failure.row.row_key for failure in asked.failures] + [row.row_key for row in asked.pending]
    assert left == [rows[place].row_key]


async def test_a_row_refused_while_others_are_answered_fails_with_the_words(
    a_run: Any, rows_of: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "REFUSALS", 3)
    rule = of_prompt(1000, Fault.UNAVAILABLE)
    async with FakeServer(rule=rule, latency=Latency(0.005)) as fake, a_run(fake.url, in_flight=2, wait_s=60) as run:
        first = asyncio.create_task(run.pool.ask(rows_of(1), chunk=1))
        for chunk in range(2, 200):
            await run.pool.ask(rows_of(2, 100 * chunk), chunk=chunk)
            if first.done():
                break
        (failure,) = (await first).failures
    assert "503" in failure.words
    assert run.pool.stopped is None


async def test_a_404_of_a_server_that_has_answered_takes_it_out_and_the_run_goes_on(a_run: Any, rows_of: Rows) -> None:
    """A proxy that has lost its backend for a moment."""
    asked_by_proxy = 0

    async def proxy(request: web.Request) -> web.StreamResponse:
        nonlocal asked_by_proxy
        asked_by_proxy += 1
        if asked_by_proxy == 5:
            return web.Response(status=404, text="default backend - 404")
        return await FakeServer.on_generate(fake, request)

    async with FakeServer() as fake:
        app = web.Application()
        app.add_routes([web.post("/generate", proxy), web.get("/health", _ok)])
        async with TestServer(app) as server:
            async with a_run(str(server.make_url("")).rstrip("/"), in_flight=2, wait_s=600) as run:
                asked = await run.pool.ask(rows_of(20), chunk=1)
    assert (len(asked.completions), run.pool.stopped) == (20, None)
    assert any("404" in text for text in run.heard.waits)


async def _ok(_: web.Request) -> web.Response:
    return web.Response()


async def test_a_judge_that_fails_in_a_tick_leaves_deadlines_alive(
    a_run: Any, rows_of: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were never answered would otherwise be waited for without end."""
    for name in ("LEAST_S", "UNMEASURED_S"):
        monkeypatch.setattr(pace, name, 0.3)
    monkeypatch.setattr(pace, "UNMEASURED_S_PER_ID", 0.0)

    def judge(_: Completion) -> Reason | None:
        raise ZeroDivisionError("a bug")

    breaker = {"share": 0.5, "window": 200}  # 25 at once: one row waits for the tick
    async with FakeServer(rule=of_prompt(1001, Fault.HANG)) as fake:
        async with a_run(fake.url, judge=judge, breaker=breaker, in_flight=2) as run:
            async with asyncio.timeout(60):
                asked = await run.pool.ask(rows_of(2), chunk=1)
    assert (len(asked.completions), len(asked.pending)) == (1, 1)
    assert "ZeroDivisionError" in str(run.pool.stopped)


async def test_a_server_that_only_fails_rows_trips_the_breaker(a_run: Any, rows_of: Rows) -> None:
    breaker = {"share": 0.5, "window": 8}
    async with FakeServer(rule=always(Fault.ERROR_500)) as fake:
        async with a_run(fake.url, breaker=breaker, retries=0, in_flight=4) as run:
            asked = await run.pool.ask(rows_of(100), chunk=1)
    assert len(asked.failures) < 20
    assert asked.pending
    assert "request_failed 8" in str(run.pool.stopped)
    assert "HTTP 500" in str(run.pool.stopped)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 502])
async def test_the_key_is_in_no_failure_and_no_error(
    a_run: Any, rows_of: Rows, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Debug pages show the request's headers."""
    monkeypatch.setenv("A_KEY", "sk-sentinel-4711")

    async def page(request: web.Request) -> web.Response:
        return web.Response(status=status, text=f"headers: {dict(request.headers)}")

    app = web.Application()
    app.add_routes([web.post("/generate", page), web.get("/health", page)])
    async with TestServer(app) as server:
        async with a_run(str(server.make_url("")).rstrip("/"), api_key_env="A_KEY", retries=1) as run:
            asked = await run.pool.ask(rows_of(3), chunk=1)
    said = [failure.words for failure in asked.failures] + run.heard.waits + [str(run.pool.stopped)]
    assert said
    assert "sentinel" not in " ".join(said)
    if status == 400:  # its words are shown, all but the key
        assert "[the key]" in asked.failures[0].words


async def test_a_server_that_answers_404_for_good_is_waited_for_and_then_the_run_stops(
    a_run: Any, rows_of: Rows
) -> None:
    asked_by_proxy = 0

    async def proxy(request: web.Request) -> web.StreamResponse:
        nonlocal asked_by_proxy
        asked_by_proxy += 1
        if asked_by_proxy > 5:
            return web.Response(status=404, text="default backend - 404")
        return await FakeServer.on_generate(fake, request)

    async def not_yet(report: ServerReport) -> Returned:
        return Returned(Return.NOT_YET, "its canary: HTTP 404")

    async with FakeServer() as fake:
        app = web.Application()
        app.add_routes([web.post("/generate", proxy), web.get("/health", _ok)])
        async with TestServer(app) as server:
            url = str(server.make_url("")).rstrip("/")
            async with a_run(url, in_flight=2, wait_s=0.2, look_again=not_yet) as run:
                async with asyncio.timeout(20):
                    asked = await run.pool.ask(rows_of(20), chunk=1)
    assert len(asked.completions) == 5
    assert "404" in str(run.pool.stopped)
    assert isinstance(run.pool.stopped, RunStopped)
