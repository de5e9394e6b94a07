"""What a server says of itself and how it tokenizes, for every engine on the shelf."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.errors import GateRefused
from draftmill.identity import canonical_json
from draftmill.records import Fault, FaultKind, ServerReport

RID = "0123456789abcdef" * 2
SECRET = "sekret"
Report = Callable[..., Coroutine[Any, Any, ServerReport]]

# What it says of itself


@pytest.fixture
def report_of(engine: Any, http: Any, serving: Any, answering: Any) -> Report:
    """The report of a server with these pages."""

    async def report(pages: dict[str, Any]) -> ServerReport:
        async with serving({path: answering(200, body) for path, body in pages.items()}) as url:
            found = await engine.door.report(http, url, model="smol")
        assert isinstance(found, ServerReport)
        return found

    return report


async def test_the_recorded_pages_make_a_report(engine: Any, report_of: Report) -> None:
    report = await report_of(engine.pages)
    assert report.name == engine.name
    assert report.engine == f"{engine.name} {report.version}"
    assert report.model == "smol"
    assert report.context_length is not None
    assert report.max_prompt == report.context_length - engine.door.PROMPT_RESERVE
    assert report.facts["model_path"] == "models/SmolLM2-135M-Instruct"
    canonical_json(asdict(report))


async def test_no_secret_ever_stands_in_a_report(engine: Any, report_of: Report) -> None:
    pages = engine.pages
    for page in pages.values():
        page |= {"api_key": SECRET, "admin_api_key": SECRET, "ssl_keyfile_password": SECRET, "env": {"KEY": SECRET}}
    assert SECRET not in repr(await report_of(pages))


@pytest.mark.parametrize("content", [(404, "no"), (500, "no"), (200, "<html>"), (200, "[" * 100_000), (200, "[1]")])
async def test_a_page_that_is_not_the_engines_refuses(
    engine: Any, http: Any, content: tuple[int, str], serving: Any, answering: Any
) -> None:
    for path in engine.kit.pages:
        routes = {other: answering(200, body) for other, body in engine.pages.items()}
        async with serving(routes | {path: answering(*content)}) as url:
            with pytest.raises(GateRefused) as refused:
                await engine.door.report(http, url, model="smol")
        assert path in f"{refused.value.value} {refused.value.expected}"


async def test_a_refused_key_refuses_without_naming_it(engine: Any, http: Any, serving: Any, answering: Any) -> None:
    for status in (401, 403):
        async with serving({path: answering(status, f"wrong key {SECRET}") for path in engine.kit.pages}) as url:
            with pytest.raises(GateRefused) as refused:
                await engine.door.report(http, url, model="smol")
        assert "engine.api_key_env" in refused.value.remedy
        assert SECRET not in repr(refused.value.args)


# Its own tokenization

MESSAGES = [{"role": "user", "content": "Wie spät? 時間"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


async def tokenized(engine: Any, http: Any, url: str, **changes: Any) -> Any:
    given = {"tools": TOOLS, "template_kwargs": {"thinking": True}, "model": "smol"} | changes
    return await engine.door.tokenize(http, url, MESSAGES, **given)


async def test_a_conversation_is_sent_whole_and_its_ids_come_back(engine: Any, http: Any, serving: Any) -> None:
    asked: list[Any] = []

    async def tokenize(request: web.Request) -> web.Response:
        asked.append((request.content_type, await request.json()))
        return web.json_response({"tokens": [1, 2, 3], "count": 3})

    async with serving({"/tokenize": tokenize}) as url:
        ids = await tokenized(engine, http, url)
        bare = await engine.door.tokenize_text(http, url, "<think>", model="smol")
        await tokenized(engine, http, url, tools=None, template_kwargs={})
    assert (ids.tolist(), bare.tolist()) == ([1, 2, 3], [1, 2, 3])
    assert {content_type for content_type, _ in asked} == {"application/json"}
    assert [body for _, body in asked] == [
        {
            "model": "smol",
            "messages": MESSAGES,
            "add_generation_prompt": True,
            "tools": TOOLS,
            "chat_template_kwargs": {"thinking": True},
        },
        {"model": "smol", "prompt": "<think>", "add_special_tokens": False},
        {"model": "smol", "messages": MESSAGES, "add_generation_prompt": True},
    ]


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_without_the_page_has_no_ids(
    engine: Any, http: Any, status: int, serving: Any, answering: Any
) -> None:
    async with serving({"/tokenize": answering(status, {"detail": "Not Found"})}) as url:
        assert await tokenized(engine, http, url) is None
        assert await engine.door.tokenize_text(http, url, "a", model="smol") is None


async def test_a_template_that_refuses_is_quoted(engine: Any, http: Any, serving: Any) -> None:
    async def tokenize(request: web.Request) -> web.Response:
        if "prompt" in await request.json():
            return web.json_response({"tokens": [7]})
        return web.json_response({"error": {"message": "roles must\nalternate"}}, status=400)

    async with serving({"/tokenize": tokenize}) as url:
        assert await tokenized(engine, http, url) == Fault(FaultKind.REJECTED, "HTTP 400: roles must alternate")


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_server_without_a_tokenizer_has_no_ids(
    engine: Any, http: Any, status: int, serving: Any, answering: Any
) -> None:
    async with serving({"/tokenize": answering(status, {"error": {"message": "no"}})}) as url:
        assert await tokenized(engine, http, url) is None


async def test_another_model_is_a_refusal_and_no_missing_page(
    engine: Any, http: Any, serving: Any, answering: Any
) -> None:
    error = {"error": {"message": "The model `smol` does not exist.", "type": "NotFoundError", "code": 404}}
    async with serving({"/tokenize": answering(404, error)}) as url:
        fault = await tokenized(engine, http, url)
    assert fault == Fault(FaultKind.REJECTED, "HTTP 404: The model `smol` does not exist.")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_stops_the_tokenization(
    engine: Any, http: Any, status: int, serving: Any, answering: Any
) -> None:
    async with serving({"/tokenize": answering(status, SECRET)}) as url:
        with pytest.raises(GateRefused) as refused:
            await tokenized(engine, http, url)
        with pytest.raises(GateRefused):
            await engine.door.tokenize_text(http, url, "a", model="smol")
    assert SECRET not in repr(refused.value.args)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ((200, "<html>"), FaultKind.UNREADABLE),
        ((200, {"tokens": [1, True]}), FaultKind.UNREADABLE),
        ((200, {"tokens": None}), FaultKind.UNREADABLE),
        ((200, []), FaultKind.UNREADABLE),
        ((503, "busy"), FaultKind.OVERLOADED),
        ((503, {"error": {"message": "busy"}}), FaultKind.OVERLOADED),
        ((429, {"error": {"message": "busy"}}), FaultKind.OVERLOADED),
        ((502, {"error": {"message": "no backend"}}), FaultKind.SERVER_ERROR),
        ((500, "Internal Server Error"), FaultKind.SERVER_ERROR),
        ((400, "<html>"), FaultKind.UNREADABLE),
        ((422, "[1]"), FaultKind.UNREADABLE),
        ((302, ""), FaultKind.WRONG_SERVER),
    ],
)
async def test_what_says_nothing_of_the_text_is_no_refusal_of_it(
    engine: Any, http: Any, content: tuple[int, Any], kind: FaultKind, serving: Any, answering: Any
) -> None:
    async with serving({"/tokenize": answering(*content)}) as url:
        faults = [await tokenized(engine, http, url), await engine.door.tokenize_text(http, url, "a", model="smol")]
    assert [fault.kind for fault in faults] == [kind, kind]
    assert all(fault.words for fault in faults)


async def test_an_accident_while_a_refusal_is_looked_into_is_an_accident(engine: Any, http: Any, serving: Any) -> None:
    """No tokenizer, or a template that refuses? The bare text that tells them apart is not answered."""

    async def tokenize(request: web.Request) -> web.Response:
        bare = "prompt" in await request.json()
        return web.json_response({"error": {"message": "no"}}, status=503 if bare else 400)

    async with serving({"/tokenize": tokenize}) as url:
        assert (await tokenized(engine, http, url)).kind is FaultKind.OVERLOADED


async def test_a_server_that_is_gone_is_told_in_words(engine: Any, http: Any, serving: Any) -> None:
    async with serving({}) as url:
        pass
    fault = await tokenized(engine, http, url)
    assert (fault.kind, fault.words) == (FaultKind.CONNECT, "no connection: Connection refused")
    fault = await tokenized(engine, http, url, template_kwargs={"day": dt.date(2026, 1, 1)})  # no JSON of ours
    assert (fault.kind, "JSON" in fault.words) == (FaultKind.REJECTED, True)


async def test_an_abort_of_a_server_that_is_gone_is_silent(engine: Any, http: Any, serving: Any) -> None:
    async with serving({}) as url:
        await engine.door.abort(http, url, RID)
    await engine.door.abort(http, url, RID)


odd = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4)
odd_pages = odd | st.lists(odd | st.just({"id": 7, "root": 7}), max_size=2) | st.dictionaries(st.text(max_size=4), odd)


@given(told=odd_pages, data=st.data())
@settings(max_examples=60)
def test_odd_pages_refuse_or_leave_a_report_a_manifest_can_hold(engine: Any, told: Any, data: st.DataObject) -> None:
    pages = engine.pages
    page = pages[data.draw(st.sampled_from(sorted(pages)))]
    page[data.draw(st.sampled_from(sorted(page)))] = told
    try:
        report = engine.door.combined("http://h", *pages.values())
    except GateRefused:
        return
    canonical_json(asdict(report))
