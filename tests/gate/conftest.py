"""A recipe of SmolLM2, reports made of a real SGLang server's recorded pages, and fakes that the gate lets pass."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest

from draftmill import gate
from draftmill.engines import sglang
from draftmill.errors import GateRefused
from draftmill.gate import Check, Gate, Level, tries
from draftmill.gate.tokens import NOT_OFFERED, token_checks
from draftmill.generation.http import open_http
from draftmill.generation.night import NO_END, Night
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import ServerReport
from draftmill.rendering.prepare import Prepared, Variants, prepare
from draftmill.rendering.template import Refused, render_ids
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, Seeded
from draftmill.serving.protocol import Limits
from draftmill.variants import DEFAULT

RECORDINGS = Path(__file__).parents[1] / "golden" / "sglang"
MODEL, CONTEXT, VOCABULARY = "smol", 2048, 49152
MARKERS = Markers(end_id=2)


def page_of(name: str) -> dict[str, Any]:
    return dict(json.loads((RECORDINGS / f"{name}.json").read_text())["response"]["body"])


@pytest.fixture(scope="session")
def recipe_for() -> Callable[..., Recipe]:
    """`recipe_for(url, model__revision="abc", engine__weights="record")`."""

    def make(*urls: str, **changes: Any) -> Recipe:
        data: dict[str, Any] = {
            "dataset": "unused",
            "prompts": {"path": "unused"},
            "model": {"name": MODEL, "tokenizer": "embedded", "context_length": CONTEXT},
            "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
            "engine": {"urls": list(urls) or ["http://unused"], "wait_s": 0},
        }
        for key, value in changes.items():
            part, name = key.split("__")
            data[part][name] = value
        return parse_recipe(data, origin="the test")

    return make


@pytest.fixture(scope="session")
def prepared(recipe_for: Callable[..., Recipe]) -> Prepared:
    return prepare(recipe_for())[DEFAULT]


@pytest.fixture(scope="session")
def variants_for(prepared: Prepared) -> Callable[[Recipe], Variants]:
    """What `prepare` gives for a recipe of the same model without variants, and takes seconds for."""
    return lambda recipe: {DEFAULT: replace(prepared, recipe=recipe)}


@pytest.fixture(scope="session")
def recorded_report() -> Callable[..., ServerReport]:
    """The report of the recorded server; `server`, `model`: fields of its pages changed; `info`: another recording."""

    def make(
        url: str = "http://h",
        *,
        server: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        info: str = "info_server_info",
        model_info: str = "info_model_info",
    ) -> ServerReport:
        pages = page_of(info) | (server or {}), page_of(model_info) | (model or {}), page_of("info_v1_models")
        return sglang.combined(url, *pages)

    return make


@pytest.fixture(scope="session")
def tokenizes() -> Callable[[dict[str, Any]], list[int]]:
    """`/tokenize` of a server with the very same tokenizer and template."""

    def ids(body: dict[str, Any]) -> list[int]:
        tokenizer = load_tokenizer(_model())
        if "prompt" in body:
            return list(tokenizer.encode(body["prompt"], add_special_tokens=False))
        kwargs = body.get("chat_template_kwargs") or {}
        found = render_ids(tokenizer, body["messages"], body.get("tools"), template_kwargs=kwargs, date=dt.date.today())
        assert not isinstance(found, Refused)
        return [int(index) for index in found]

    return ids


def _model() -> Any:
    from draftmill.recipe import Model

    return Model(name=MODEL, tokenizer="embedded", context_length=CONTEXT)


@pytest.fixture(scope="session")
def server() -> Callable[..., FakeServer]:
    """A server the gate lets pass, unless told otherwise; `card`: what it says of itself."""

    def make(*, answers: Any = None, card: dict[str, Any] | None = None, **options: Any) -> FakeServer:
        limits = options.pop("limits", Limits(CONTEXT, VOCABULARY))
        return FakeServer(
            answers or Seeded(7, MARKERS, range(1000, 40000), (4, 12)),
            card=Card(**({"model": MODEL, "version": "0.5.23", "slots": 8} | (card or {}))),
            limits=limits,
            markers=MARKERS,
            **options,
        )

    return make


@pytest.fixture
def inspected(variants_for: Callable[[Recipe], Variants], recipe_for: Callable[..., Recipe]) -> Callable[..., Any]:
    """`await inspected(url, engine__wait_s=1, last=None)`: the gate of these servers."""

    async def inspect(
        *urls: str, last: Any = None, night: Night = NO_END, protocol: ModuleType = sglang, **changes: Any
    ) -> Gate:
        recipe = recipe_for(*urls, **changes)
        async with open_http(recipe.engine) as http:
            return await gate.inspect_servers(
                recipe, variants_for(recipe), protocol=protocol, http=http, last=last, night=night
            )

    return inspect


@pytest.fixture
def checks_of(prepared: Prepared, server: Any) -> Any:
    """The three checks, by name, against a fake whose `/tokenize` is `page`."""

    async def checks(
        page: Callable[[dict[str, Any]], list[int]] | None, *, with_: Prepared = prepared
    ) -> dict[str, Check]:
        async with server(tokenizer=page) as fake, aiohttp.ClientSession() as http:
            compared = await token_checks(http, sglang, fake.url, with_, model="smol")
        first = compared.checks[0]
        assert compared.equal is (first.level is Level.OK and first.seen != NOT_OFFERED)
        return {each.name: each for each in compared.checks}

    return checks


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(tries, "PAUSE_S", 0)


@pytest.fixture
def refusal() -> Callable[[Gate], GateRefused]:
    """The gate's error, whose four parts all say something."""

    def of(seen: Gate) -> GateRefused:
        with pytest.raises(GateRefused) as refused:
            seen.refuse()
        assert refused.value.exit_code == 4
        for part in (refused.value.what, refused.value.value, refused.value.expected, refused.value.remedy):
            assert str(part).strip()
        return refused.value

    return of
