"""What a server says of itself, as one report without secrets; its readiness; aborts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.engines import sglang
from draftmill.errors import GateRefused
from draftmill.identity import canonical_json
from draftmill.records import ServerReport
from draftmill.serving.fake import FakeServer

Pages = dict[str, Any]
SECRET = "sekret"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def pages(page: Callable[[str], Pages]) -> Pages:
    """The three recorded pages of a server with a key."""
    return {
        "/server_info": page("key_right_server_info"),
        "/model_info": page("info_model_info"),
        "/v1/models": page("key_right_v1_models"),
    }


async def report_of(http: aiohttp.ClientSession, pages: Pages) -> ServerReport:
    """The report of a server with these pages; a page that is a response is sent as it is."""

    def handler(content: Any) -> Any:
        async def handle(_: web.Request) -> web.Response:
            if isinstance(content, tuple):
                status, text = content
                return web.Response(status=status, text=text)
            return web.json_response(content)

        return handle

    app = web.Application()
    app.add_routes([web.get(path, handler(content)) for path, content in pages.items()])
    async with TestServer(app) as server:
        return await sglang.report(http, str(server.make_url("")).rstrip("/"), model="smol")


async def test_the_recorded_pages_make_a_report(http: aiohttp.ClientSession, pages: Pages) -> None:
    report = await report_of(http, pages)
    assert (report.engine, report.model, report.weight_version) == ("sglang 0.5.23", "smol", "default")
    assert (report.context_length, report.max_prompt, report.auto_truncate) == (64, 58, False)
    assert report.reasoning_parser is None
    assert report.facts["model_path"] == "models/SmolLM2-135M-Instruct"
    assert report.facts["max_total_num_tokens"] == 65536


async def test_the_key_stands_twice_in_the_page_and_never_in_the_report(
    http: aiohttp.ClientSession, pages: Pages
) -> None:
    info = pages["/server_info"]
    assert (info["api_key"], info["internal_states"][0]["api_key"]) == (SECRET, SECRET)
    assert SECRET not in repr(await report_of(http, pages))


async def test_older_servers_answer_under_older_names(
    http: aiohttp.ClientSession, page: Callable[[str], Pages]
) -> None:
    report = await report_of(
        http,
        {
            "/get_server_info": page("info_get_server_info"),
            "/get_model_info": page("info_get_model_info"),
            "/v1/models": page("info_v1_models"),
        },
    )
    assert (report.model, report.context_length, report.max_prompt) == ("smol", 8192, 8186)


async def test_the_context_is_the_models_when_v1_models_does_not_say(http: aiohttp.ClientSession, pages: Pages) -> None:
    assert (await report_of(http, pages | {"/v1/models": {"data": []}})).context_length == 64


async def test_a_small_pool_and_other_weights_are_told(
    http: aiohttp.ClientSession, pages: Pages, page: Callable[[str], Pages]
) -> None:
    report = await report_of(
        http, pages | {"/server_info": page("pool256_server_info"), "/model_info": page("trunc_model_info")}
    )
    assert (report.facts["max_total_num_tokens"], report.weight_version) == (256, "w7")


odd = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
)
FIELDS = {
    "/server_info": [*sglang._FACTS, "version", "context_length", "max_req_input_len", "allow_auto_truncate"],
    "/model_info": ["served_model_name", "weight_version", "reasoning_parser"],
    "/v1/models": ["data"],
}


@given(
    path=st.sampled_from(list(FIELDS)),
    value=odd | st.dictionaries(st.text(max_size=4), odd, max_size=2) | st.lists(st.just({"id": 7}), max_size=1),
    data=st.data(),
)
@settings(max_examples=60)
def test_odd_fields_refuse_or_leave_a_report_a_manifest_can_hold(
    page: Callable[[str], Pages], path: str, value: Any, data: st.DataObject
) -> None:
    contents: Pages = {
        "/server_info": page("key_right_server_info"),
        "/model_info": page("info_model_info"),
        "/v1/models": page("key_right_v1_models"),
    }
    contents[path][data.draw(st.sampled_from(FIELDS[path]))] = value
    told: ServerReport | GateRefused
    try:
        told = sglang.combined("http://h", contents["/server_info"], contents["/model_info"], contents["/v1/models"])
    except GateRefused as error:
        told = error
    assert SECRET not in f"{told!r} {told}"
    if isinstance(told, ServerReport):
        canonical_json(asdict(told))
        assert told.context_length is None or told.context_length >= 0


async def test_readiness_is_told_in_words(http: aiohttp.ClientSession) -> None:
    async with FakeServer() as ready, FakeServer(loading_s=1e9) as loading:
        assert await sglang.is_ready(http, ready.url) is None
        assert await sglang.is_ready(http, loading.url) == "/health answers 503"
        gone = ready.url
    assert "Connection refused" in str(await sglang.is_ready(http, gone))
