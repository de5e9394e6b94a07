"""The token counter of vLLM's `/metrics`: the only sign that its engine lives."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from draftmill.engines import vllm
from draftmill.records import Life, Pulse

METRICS = json.loads((Path(__file__).parents[1] / "golden" / "vllm" / "info_metrics.json").read_text())
RECORDED = "\n".join(METRICS["response"]["body"]) + "\n"
NAME = "vllm:generation_tokens_total"


async def pulse_with(metrics: str | None) -> Pulse:
    """The pulse of a healthy server with these metrics; None is a server without the page."""
    app = web.Application()
    app.add_routes([web.get("/health", _healthy)])
    if metrics is not None:

        async def page(_: web.Request) -> web.Response:
            return web.Response(body=metrics.encode("utf-8", "surrogatepass"), content_type="text/plain")

        app.add_routes([web.get("/metrics", page)])
    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        return await vllm.pulse(http, str(server.make_url("")).rstrip("/"))


async def _healthy(_: web.Request) -> web.Response:
    return web.Response()


@pytest.mark.parametrize(
    ("metrics", "tokens"),
    [
        (RECORDED, 0),
        (RECORDED.replace(f'{NAME}{{engine="0",model_name="smol"}} 0.0', f'{NAME}{{engine="0"}} 1.25e+06'), 1_250_000),
        (f'# TYPE {NAME} counter\n{NAME}{{engine="0"}} 5.0\n{NAME}{{engine="1"}} 7.0\n', 12),  # data parallel
        (f"{NAME} 3\n{NAME}_created 1.7e9\n", 3),
        ("", None),
        (None, None),
        ("<html>", None),
        (f"{NAME} NaN\n", None),
        (f"{NAME} +Inf\n", None),
        (f"{NAME}{{engine= 5\n", None),
        (f"{NAME} \udcff\n", None),
    ],
)
async def test_tokens_are_counted_over_all_engines(metrics: str | None, tokens: int | None) -> None:
    pulse = await pulse_with(metrics)
    assert (pulse.life, pulse.tokens) == (Life.ALIVE, tokens)
