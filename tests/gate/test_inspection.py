"""The whole gate against fake servers: what refuses, what warns, what is asked, and that nothing is an exception."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from draftmill import gate
from draftmill.gate import Gate, Level, canary, look
from draftmill.progress import Rows, listening
from draftmill.rendering.prepare import Prepared
from draftmill.serving.protocol import Limits

EVERY_CHECK = [
    *("reachable", "loaded", "version", "model", "revision", "quantization", "weight version"),
    *("context length", "longest prompt", "KV pool"),
    *("engine", "reasoning parser", "tool parser", "auto truncate", "speculative decoding", "strict thinking"),
    *("watermark", "logit processors", "preferred sampling", "tokenizer", "markers", "highest id", "canary"),
]


def levels(seen: Gate) -> dict[str, Level]:
    return {check.name: check.level for check in seen.checks}


def bad(seen: Gate) -> list[str]:
    return [check.name for check in seen.checks if check.level is not Level.OK]


async def test_the_right_server_passes_with_one_canary(
    server: Any, inspected: Any, tokenizes: Any, prepared: Prepared
) -> None:
    async with server(tokenizer=tokenizes) as fake:
        seen = await inspected(fake.url, last=[{"weight_version": "default"}])
    seen.refuse()
    assert levels(seen) == dict.fromkeys(EVERY_CHECK, Level.OK)
    assert [entry.input_ids for entry in fake.log] == [prepared.canary_ids.tolist()]
    assert (fake.log[0].sampling_params or {})["max_new_tokens"] == canary.CANARY_TOKENS
    assert [report.engine for report in seen.reports] == ["sglang 0.5.23"]


async def test_look_opens_its_own_session(server: Any, recipe_for: Any, variants_for: Any) -> None:
    async with server() as fake:
        recipe = recipe_for(fake.url)
        seen = await look(recipe, variants_for(recipe))
    assert {check.level for check in seen.checks} == {Level.OK}


async def test_every_server_is_looked_at_and_they_are_held_together(server: Any, inspected: Any, refusal: Any) -> None:
    async with server() as one, server(card={"weight_version": "w2"}, limits=Limits(4096, 49152)) as other:
        seen = await inspected(one.url, other.url)
    assert bad(seen) == ["same model"]
    error = refusal(seen)
    for words in (f"{one.url} default", f"{other.url} w2", f"{one.url} 2048", f"{other.url} 4096"):
        assert words in str(error.value)
    assert [len(one.log), len(other.log)] == [1, 1]


@pytest.mark.parametrize(("pages", "level"), [(2, Level.OK), (1, Level.REFUSE), (0, Level.REFUSE)])
async def test_tokenizers_of_other_folders_are_one_when_the_ids_of_all_were_compared(
    server: Any, inspected: Any, tokenizes: Any, monkeypatch: pytest.MonkeyPatch, pages: int, level: Level
) -> None:
    """`pages`: how many of the two servers tokenize."""
    from draftmill.engines import sglang

    async def report(http: Any, url: str, *, model: str) -> Any:
        said = await honest(http, url, model=model)
        return replace(said, facts=said.facts | {"tokenizer_path": f"/tokenizers/{url[-5:]}"})

    honest = sglang.report
    monkeypatch.setattr(sglang, "report", report)
    one, other = (tokenizes if number < pages else None for number in range(2))
    async with server(tokenizer=one) as first, server(tokenizer=other) as second:
        seen = await inspected(first.url, second.url)
    assert levels(seen)["same model"] is level
    assert levels(seen)["same engine"] is Level.WARN


async def test_a_url_named_twice_is_one_server(server: Any, inspected: Any) -> None:
    async with server() as fake:
        seen = await inspected(fake.url, f"{fake.url}/")
    assert len(fake.log) == len(seen.reports) == 1


@pytest.mark.parametrize(
    ("names", "options", "seen_part", "remedy_part"),
    [
        (["model"], {"card": {"model": "another"}}, "another", "--served-model-name"),
        (["context length", "longest prompt"], {"limits": Limits(1024, 49152)}, "1024", "--context-length"),
        (["longest prompt", "KV pool"], {"limits": Limits(2048, 49152, pool=512)}, "506", "KV memory"),
        (["reasoning parser"], {"card": {"reasoning_parser": "kimi_k2"}}, "kimi_k2", "--reasoning-parser"),
        (["auto truncate"], {"limits": Limits(2048, 49152, auto_truncate=True)}, "True", "--allow-auto-truncate"),
        (["version"], {"card": {"version": "0.5.3"}}, "prompt's tail", "newer version"),
    ],
)
async def test_what_a_server_says_of_itself_can_refuse(
    server: Any, inspected: Any, refusal: Any, names: list[str], options: Any, seen_part: str, remedy_part: str
) -> None:
    async with server(**options) as fake:
        seen = await inspected(fake.url)
    assert [name for name in bad(seen) if name != "canary"] == names
    error = refusal(seen)
    assert names[0] in error.what
    assert fake.url in error.what
    assert seen_part in str(error.value)
    assert remedy_part in error.remedy


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("engine", {"notes": ("a fake: no model is behind it",)}),
        ("preferred sampling", {"preferred": {"regex": "a+"}}),
    ],
)
async def test_a_warning_does_not_refuse(server: Any, inspected: Any, name: str, card: dict[str, Any]) -> None:
    async with server(card=card) as fake:
        seen = await inspected(fake.url)
    seen.refuse()
    assert [check.name for check in seen.checks if check.level is Level.WARN] == [name]
    assert all(check.remedy for check in seen.checks if check.level is Level.WARN)


async def test_other_refusals_are_named(server: Any, inspected: Any, refusal: Any) -> None:
    async with server(card={"version": "0.5.3", "reasoning_parser": "kimi_k2"}) as fake:
        assert "1 more: reasoning parser" in refusal(await inspected(fake.url)).what


@pytest.mark.parametrize("name", ["model", "tokenizer"])
async def test_another_model_gets_no_canary(server: Any, inspected: Any, tokenizes: Any, name: str) -> None:
    options = {
        "model": {"card": {"model": "another"}},
        "tokenizer": {"tokenizer": lambda body: [0, *tokenizes(body)]},
    }
    async with server(**options[name]) as fake:
        seen = await inspected(fake.url)
    assert not fake.log
    last = seen.checks[-1]
    assert (last.name, last.level) == ("canary", Level.WARN)
    assert name in last.seen


@contextlib.asynccontextmanager
async def another_server(body: str) -> AsyncIterator[str]:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text=body, content_type="text/html")

    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", page)])
    async with TestServer(app) as running:
        yield str(running.make_url("")).rstrip("/")


@pytest.mark.parametrize("body", ["<html>", "[]", '"SGLang is running"'])
async def test_a_server_that_is_no_sglang_refuses(inspected: Any, refusal: Any, body: str) -> None:
    async with another_server(body) as url:
        seen = await inspected(url)
    error = refusal(seen)
    assert (bad(seen), seen.reports) == (["pages"], [])
    assert "does not answer as an" in str(error.value) or "does not answer as SGLang" in str(error.value)
    assert "engine.kind" in error.remedy


async def test_a_server_that_is_not_there_refuses_and_the_others_are_seen(
    server: Any, inspected: Any, refusal: Any
) -> None:
    async with server() as gone:
        pass
    async with server() as there:
        seen = await inspected(gone.url, there.url)
    error = refusal(seen)
    assert f"{gone.url}: reachable" in error.what
    assert "Connection refused" in str(error.value)
    assert "engine.wait_s" in error.remedy
    assert [report.url for report in seen.reports] == [there.url]
    assert len(there.log) == 1


async def test_a_server_that_does_not_finish_loading_refuses_without_a_canary(
    server: Any, inspected: Any, refusal: Any
) -> None:
    async with server(loading_s=1e9) as fake:
        seen = await inspected(fake.url)
    error = refusal(seen)
    assert levels(seen) == {"reachable": Level.OK, "loaded": Level.REFUSE}
    assert error.value == "/health answers 503"
    assert not fake.log


class Heard:
    def __init__(self) -> None:
        self.waits: list[str] = []

    def stage(self, text: str) -> None: ...

    def rows(self, rows: Rows) -> None: ...

    def wait(self, text: str) -> None:
        self.waits.append(text)


async def test_a_loading_server_is_waited_for_and_this_is_told(
    server: Any, inspected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmill.gate.inspection.LOOK_EVERY_S", 0.005)
    heard = Heard()
    async with server(loading_s=1e9) as fake:
        with listening(heard):
            looking = asyncio.create_task(inspected(fake.url, engine__wait_s=600))
            while len(heard.waits) < 3:
                await asyncio.sleep(0.002)
            fake._loaded_at = 0
            seen = await looking
    seen.refuse()
    assert "/health answers 503" in heard.waits[0]
    assert fake.url in heard.waits[0]


async def test_a_server_that_goes_away_between_two_looks_is_a_refusal(
    server: Any, inspected: Any, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ready, and then its pages reset the connection."""
    from draftmill.engines import sglang

    async with server() as gone:
        pass

    async def ready(*_: object) -> None:
        return None

    monkeypatch.setattr(sglang, "is_ready", ready)
    seen = await inspected(gone.url)
    assert bad(seen) == ["pages"]
    assert gone.url in refusal(seen).what


async def test_pages_that_break_off_are_a_refusal_too(
    server: Any, inspected: Any, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftmill.engines import sglang

    async def broken(*_: object, **__: object) -> None:
        raise ConnectionResetError("by peer")

    monkeypatch.setattr(sglang, "report", broken)
    async with server() as fake:
        seen = await inspected(fake.url)
    assert "went away" in str(refusal(seen).value)
    assert "ConnectionResetError: by peer" in str(refusal(seen).value)
    assert not fake.log


def test_every_check_is_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    section = text.split("## What the gate checks\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]
    named = [name for cell in cells for name in cell.split(", ")]
    assert sorted(named) == sorted([*EVERY_CHECK, "pages", "same model", "same engine"])


def test_the_package_names_its_doors() -> None:
    assert set(gate.__all__) == {"Check", "Gate", "Level", "inspect_servers", "look", "look_again"}
