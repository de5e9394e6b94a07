"""Each refusal and each warning of the gate, once, against the fake server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from draftmill import gate
from draftmill.engines import sglang
from draftmill.errors import GateRefused
from draftmill.gate import Gate, Level
from draftmill.generation.http import open_http
from draftmill.progress import Rows, listening
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.prepare import Prepared, prepare
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, Seeded, in_order
from draftmill.serving.faults import Act, Fault, always
from draftmill.serving.protocol import Limits

MODEL = "SmolLM2-135M-Instruct"
MARKERS = Markers(end_id=2)
CONTEXT = 2048
KEY = "DRAFTMILL_TEST_GATE_KEY"


def recipe_for(*urls: str, **engine: Any) -> Recipe:
    data = {
        "dataset": "unused",
        "prompts": {"path": "unused"},
        "model": {"name": MODEL, "tokenizer": "embedded", "context_length": CONTEXT},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
        "engine": {"urls": list(urls), "wait_s": 0, **engine},
    }
    return parse_recipe(data, origin="the test")


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(recipe_for("http://unused"))


def server(
    *,
    model: str = MODEL,
    context: int = CONTEXT,
    answers: Any = None,
    card: dict[str, Any] | None = None,
    **options: Any,
) -> FakeServer:
    """A server the gate lets pass, unless told otherwise."""
    limits = options.pop("limits", Limits(context, 49152))
    return FakeServer(
        answers or Seeded(7, MARKERS, range(1000, 40000), (4, 12)),
        card=Card(model, "0.5.23", slots=8, **(card or {})),
        limits=limits,
        markers=MARKERS,
        **options,
    )


async def inspected(prepared: Prepared, *urls: str, **engine: Any) -> Gate:
    recipe = recipe_for(*urls, **engine)
    async with open_http(recipe.engine) as http:
        return await gate.inspect_servers(
            recipe, prepared.structure, canary_ids=prepared.canary_ids, protocol=sglang, http=http
        )


def levels(seen: Gate) -> dict[str, Level]:
    return {check.name: check.level for check in seen.checks}


def refusal(seen: Gate) -> GateRefused:
    """The gate's error, whose four parts all say something."""
    with pytest.raises(GateRefused) as refused:
        seen.refuse()
    assert refused.value.exit_code == 4
    for part in (refused.value.what, refused.value.value, refused.value.expected, refused.value.remedy):
        assert str(part).strip()
    return refused.value


async def test_the_right_server_passes_with_one_canary(prepared: Prepared) -> None:
    async with server() as fake:
        seen = await inspected(prepared, fake.url)
    seen.refuse()
    assert set(levels(seen).values()) == {Level.OK}
    assert [entry.input_ids for entry in fake.log] == [prepared.canary_ids.tolist()]
    assert (fake.log[0].sampling_params or {})["max_new_tokens"] == gate.CANARY_TOKENS
    assert [report.engine for report in seen.reports] == ["sglang 0.5.23"]


async def test_look_prepares_the_recipe_by_itself() -> None:
    async with server() as fake:
        seen = await gate.look(recipe_for(fake.url), prepare(recipe_for(fake.url)))
    assert {check.level for check in seen.checks} == {Level.OK}


async def test_every_server_is_looked_at(prepared: Prepared) -> None:
    async with server() as one, server(model="another") as other:
        seen = await inspected(prepared, one.url, other.url)
    assert other.url in refusal(seen).what
    assert [len(one.log), len(other.log)] == [1, 1]


@pytest.mark.parametrize(
    ("name", "options", "seen_part", "remedy_part"),
    [
        ("model", {"model": "another"}, "another", "--served-model-name"),
        ("context length", {"context": 1024}, "1024", "--context-length"),
        ("KV pool", {"limits": Limits(CONTEXT, pool=512)}, "512 tokens", "lower model.context_length"),
        ("reasoning parser", {"card": {"reasoning_parser": "kimi_k2"}}, "kimi_k2", "--reasoning-parser"),
        ("auto truncate", {"limits": Limits(CONTEXT, auto_truncate=True)}, "True", "--allow-auto-truncate"),
    ],
)
async def test_what_a_server_says_of_itself_can_refuse(
    prepared: Prepared, name: str, options: dict[str, Any], seen_part: str, remedy_part: str
) -> None:
    async with server(**options) as fake:
        seen = await inspected(prepared, fake.url)
    assert [check for check, level in levels(seen).items() if level is not Level.OK] == [name]
    error = refusal(seen)
    assert name in error.what
    assert fake.url in error.what
    assert seen_part in str(error.value)
    assert remedy_part in error.remedy


async def test_a_development_engine_warns_and_does_not_refuse(prepared: Prepared) -> None:
    async with server(card={"notes": ("a fake: no model is behind it",)}) as fake:
        seen = await inspected(prepared, fake.url)
    seen.refuse()
    warned = [check for check in seen.checks if check.level is Level.WARN]
    assert [check.name for check in warned] == ["engine"]
    assert "no model is behind it" in warned[0].seen
    assert warned[0].remedy


async def test_several_refusals_are_counted(prepared: Prepared) -> None:
    async with server(model="another", context=1024) as fake:
        assert "1 more" in refusal(await inspected(prepared, fake.url)).what


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.WRONG_ECHO, "prompt_mismatch"),
        (Fault.FEWER_PROMPT_TOKENS, "prompt_mismatch"),
        (Fault.NO_OUTPUT_IDS, "output_ids"),
        (Act(Fault.PROMPT_TAIL_FIRST, 3), "prompt_echo"),
        (Fault.NO_END, "no_end_of_turn"),
        (Fault.WRONG_COUNT, "count_mismatch"),
        (Fault.ID_OUT_OF_RANGE, "id_out_of_range"),
        (Fault.NAN, "corrupted"),
        (Fault.OTHER_RID, "the answer is for request"),
        (Fault.ABORTED, "Aborted"),
        (Fault.ERROR_500, "HTTP 500: Internal Server Error"),
        (Fault.UNAVAILABLE, "HTTP 503: The request queue is full."),
        (Fault.FOREIGN_JSON, "not an answer of /generate"),
        (Fault.RESET_BEFORE, "Error: "),
    ],
    ids=str,
)
async def test_a_canary_that_is_answered_wrongly_refuses(prepared: Prepared, fault: Act | Fault, words: str) -> None:
    async with server(answers=in_order([[1000, 1001, 1002, 2]]), rule=always(fault)) as fake:
        seen = await inspected(prepared, fake.url)
    error = refusal(seen)
    assert "canary" in error.what
    assert words in str(error.value)
    assert "echoed" in error.expected
    assert len(fake.log) == 1


async def test_a_canary_that_is_never_answered_refuses(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "CANARY_TIMEOUT_S", 0.05)
    async with server(rule=always(Fault.HANG)) as fake:
        assert "no answer" in str(refusal(await inspected(prepared, fake.url)).value)


async def test_a_canary_cut_by_its_budget_is_fine(prepared: Prepared) -> None:
    async with server(answers=in_order([[*range(1000, 1100), 2]])) as fake:
        seen = await inspected(prepared, fake.url)
    seen.refuse()
    assert seen.checks[-1].seen == "16 ids, length"


async def test_a_wrong_key_refuses_and_the_right_one_passes(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(card={"api_key": "sekret"}) as fake:
        with pytest.raises(GateRefused) as refused:
            await inspected(prepared, fake.url)
        assert "engine.api_key_env" in refused.value.remedy
        monkeypatch.setenv(KEY, "sekret")
        seen = await inspected(prepared, fake.url, api_key_env=KEY)
    seen.refuse()
    assert "sekret" not in repr(seen)
    assert "sekret" not in str(refused.value)


@contextlib.asynccontextmanager
async def another_server(body: str) -> AsyncIterator[str]:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text=body, content_type="text/html")

    app = web.Application()
    app.add_routes([web.route("*", "/{path:.*}", page)])
    async with TestServer(app) as running:
        yield str(running.make_url("")).rstrip("/")


@pytest.mark.parametrize("body", ["<html>", "[]", '"SGLang is running"'])
async def test_a_server_that_is_no_sglang_refuses(prepared: Prepared, body: str) -> None:
    async with another_server(body) as url:
        with pytest.raises(GateRefused) as refused:
            await inspected(prepared, url)
    assert "engine.kind" in refused.value.remedy
    assert "/server_info" in f"{refused.value.value} {refused.value.expected}"


async def test_a_server_that_is_not_there_refuses_when_nothing_is_waited_for(prepared: Prepared) -> None:
    async with server() as gone:
        pass
    with pytest.raises(GateRefused) as refused:
        await inspected(prepared, gone.url, wait_s=0)
    assert gone.url in refused.value.what
    assert "Cannot connect" in str(refused.value.value)
    assert "engine.wait_s" in refused.value.expected
    assert refused.value.remedy


async def test_a_server_that_does_not_finish_loading_refuses_without_a_canary(prepared: Prepared) -> None:
    async with server(loading_s=1e9) as fake:
        with pytest.raises(GateRefused) as refused:
            await inspected(prepared, fake.url, wait_s=0)
    assert refused.value.value == "/health answers 503"
    assert not fake.log


class Heard:
    def __init__(self) -> None:
        self.waits: list[str] = []

    def stage(self, text: str) -> None: ...

    def rows(self, rows: Rows) -> None: ...

    def wait(self, text: str) -> None:
        self.waits.append(text)


async def test_a_loading_server_is_waited_for_and_this_is_told(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LOOK_EVERY_S", 0.005)
    heard = Heard()
    async with server(loading_s=1e9) as fake:
        with listening(heard):
            looking = asyncio.create_task(inspected(prepared, fake.url, wait_s=600))
            while len(heard.waits) < 3:
                await asyncio.sleep(0.002)
            fake._loaded_at = 0
            seen = await looking
    seen.refuse()
    assert "/health answers 503" in heard.waits[0]
    assert fake.url in heard.waits[0]


def test_the_checks_of_a_report_are_pure_and_bear_odd_facts() -> None:
    recipe = recipe_for("http://h")
    report = sglang.combined("http://h", {"max_total_num_tokens": "many"}, {"model_path": MODEL}, {})
    seen = {check.name: check.level for check in gate.self_description(report, recipe)}
    assert seen["KV pool"] is Level.OK
    assert seen["context length"] is Level.REFUSE  # a server that does not say is not believed
