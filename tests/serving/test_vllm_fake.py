"""The fake vLLM: its answers are a real 0.32.0's, and it breaks as that one did."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from draftmill.arrays import ids_array
from draftmill.engines import vllm
from draftmill.recipe import Sampling
from draftmill.records import Answer, Fault, FaultKind, Life, Row
from draftmill.serving.fake_answers import Seeded, by_prompt, in_order
from draftmill.serving.vllm_fake import State, VllmFake
from draftmill.serving.vllm_protocol import VllmLimits

RECORDINGS = Path(__file__).parents[1] / "golden" / "vllm"
LIMITS = VllmLimits(context_length=2048, vocabulary=49152)
PARIS = [504, 3575, 282, 4649, 314, 7042, 30, 2]
SAMPLING = Sampling(temperature=1, top_p=1, max_new_tokens=64)


def recorded(name: str) -> dict[str, Any]:
    return dict(json.loads((RECORDINGS / f"{name}.json").read_text()))


async def ask(client: Any, fake: VllmFake, request: dict[str, Any]) -> tuple[int, Any]:
    """A recorded request again."""
    options: dict[str, Any] = {"headers": request.get("headers")}
    if "raw" in request:
        options |= {"data": request["raw"], "headers": {"Content-Type": "application/json"}}
    elif "json" in request:
        options["json"] = request["json"]
    status, body = await client.ask(request["method"], f"{fake.url}{request['path']}", **options)
    return status, body


def fake_of(**options: Any) -> VllmFake:
    return VllmFake(in_order([PARIS]), model="smol", limits=LIMITS, **options)


@pytest.mark.parametrize(
    "name",
    [
        "gen_basic",
        "gen_max3",
        "gen_max_exactly_eos",
        "gen_max_before_eos",
        "gen_max_null",
        "gen_stop_token_ids",
        "gen_stop_token_ids_two",
        "gen_stop_token_ids_eos",
        "gen_stop_token_ids_null",
        "gen_request_id",
        "gen_request_id_empty",
        "gen_x_request_id",
        "gen_both_request_ids",
        "gen_return_token_ids_off",
        "gen_no_model",
        "gen_add_special_false",
        "gen_skip_special_false",
        "gen_top_k_minus1",
        "gen_min_p",
        "accepted_unknown_max_new_tokens",
        "edge_prompt_37_max2012",
        "key_right",
    ],
)
async def test_an_answer_is_the_recorded_one(client: Any, name: str) -> None:
    found = recorded(name)
    async with fake_of(api_key="sekret" if name == "key_right" else None) as fake:
        status, body = await ask(client, fake, found["request"])
    wanted = found["response"]["body"]
    assert status == 200
    assert body.keys() == wanted.keys()
    (choice,), (wanted_choice,) = body["choices"], wanted["choices"]
    assert choice | {"text": ""} == wanted_choice | {"text": ""}
    counts = ("prompt_tokens", "total_tokens", "completion_tokens")
    assert body["usage"].keys() == wanted["usage"].keys()
    assert [body["usage"][name] for name in counts] == [wanted["usage"][name] for name in counts]
    if "request_id" in found["request"]["json"] or "x-request-id" in found["response"]["headers"]:
        assert body["id"] == wanted["id"]


@pytest.mark.parametrize(
    "name",
    [
        "edge_prompt_2048_max1",
        "edge_prompt_37_max2049",
        "err_empty_prompt_list",
        "err_list_of_empty",
        "err_max_negative",
        "err_n0",
        "err_no_body",
        "err_oov_id_49152",
        "err_oov_id_2e63",
        "err_prompt_missing",
        "err_prompt_too_long",
        "err_top_k_minus2",
        "err_top_p_0",
        "err_wrong_model",
        "gen_max0",
        "gen_max_huge",
        "gen_min_gt_max",
        "gen_request_id_int",
        "gen_request_id_null",
        "gen_stop_token_ids_oov",
        "gen_temperature_5",
        "info_get_completions",
        "info_unknown_path",
        "info_server_info",
        "info_tokenize_wrong_model",
        "key_none",
        "key_wrong",
        "key_basic_scheme",
        "key_none_GET_v1_models",
        "skiptok_tokenize",
    ],
)
async def test_a_refusal_is_the_recorded_one_to_the_word(client: Any, name: str) -> None:
    found = recorded(name)
    async with fake_of(api_key="sekret" if name.startswith("key_") else None) as fake:
        status, body = await ask(client, fake, found["request"])
    assert (status, body) == (found["response"]["status"], found["response"]["body"])


async def test_clipping_is_silent(client: Any) -> None:
    long = VllmFake(in_order([list(range(1000, 1400))]), limits=VllmLimits(2048, cap=200), model="smol")
    async with long as fake:
        _, capped = await ask(client, fake, recorded("override_max_300")["request"] | {"json": body_of(37, 300)})
        _, full = await ask(client, fake, {"method": "POST", "path": "/v1/completions", "json": body_of(2040, 9)})
        _, absent = await ask(client, fake, {"method": "POST", "path": "/v1/completions", "json": body_of(37, None)})
    told = [body["choices"][0] for body in (capped, full, absent)]
    assert [len(choice["token_ids"]) for choice in told] == [200, 8, 16]
    assert {choice["finish_reason"] for choice in told} == {"length"}


def body_of(num_prompt: int, budget: int | None) -> dict[str, Any]:
    return {"model": "smol", "prompt": [7] * num_prompt, "max_tokens": budget, "return_token_ids": True}


async def test_the_pages_make_the_recorded_report(client: Any) -> None:
    async with fake_of() as fake, aiohttp.ClientSession() as http:
        report = await vllm.report(http, fake.url, model="smol")
        assert await vllm.is_ready(http, fake.url) is None
        _, body = await client.ask("GET", f"{fake.url}/v1/models")
    assert (report.engine, report.model) == ("vllm 0.32.0", "smol")
    assert (report.context_length, report.max_prompt) == (2048, 2047)
    assert body["data"][0].keys() <= recorded("info_v1_models")["response"]["body"]["data"][0].keys()


async def test_it_tokenizes_with_what_it_is_given() -> None:
    async with fake_of(tokenizer=lambda body: [1, 2] if "messages" in body else [3]) as fake, session() as http:
        ids = await vllm.tokenize(http, fake.url, [], tools=None, template_kwargs={}, model="smol")
        bare = await vllm.tokenize_text(http, fake.url, "a", model="smol")
    assert not isinstance(ids, Fault | None)
    assert not isinstance(bare, Fault | None)
    assert (ids.tolist(), bare.tolist()) == ([1, 2], [3])
    async with fake_of() as fake, session() as http:
        assert await vllm.tokenize(http, fake.url, [], tools=None, template_kwargs={}, model="smol") is None


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


class Asking:
    """A client of the engine's door."""

    def __init__(self, http: aiohttp.ClientSession, fake: VllmFake) -> None:
        self.http, self.fake = http, fake

    async def __call__(self, number: int = 1) -> Answer | Fault:
        row = Row("k", 0, "p", "id", "default", 0, ids_array("p", [7, 7, number]), 64, None, "f")
        body = vllm.payload(row, SAMPLING, rid=f"r{number}", model=self.fake.model)
        headers = {"Content-Type": "application/json"}
        async with self.http.post(self.fake.url + vllm.GENERATE, data=body, headers=headers) as answer:
            raw = await answer.read()
        return vllm.read(answer.status, answer.headers, raw, row=row, rid=f"r{number}", engine="vllm 0.32.0")

    async def in_flight(self, number: int) -> list[asyncio.Task[Answer | Fault]]:
        """So many requests, all of them taken by the server."""
        tasks = [asyncio.create_task(self(index)) for index in range(number)]
        while len(self.fake.flights) < number:
            await asyncio.sleep(0.001)
        return tasks


async def test_the_engine_reads_what_the_fake_says() -> None:
    async with VllmFake(Seeded(seed=3), limits=LIMITS) as fake, session() as http:
        results = [await Asking(http, fake)(number) for number in range(20)]
    assert all(isinstance(result, Answer) and result.echo_ids is None and result.matched == 2 for result in results)
    assert sum(result.completion_tokens or 0 for result in results if isinstance(result, Answer)) == fake.tokens


async def test_a_script_that_does_not_know_a_prompt_is_the_tests_fault() -> None:
    async with VllmFake(by_prompt({(7, 7, 1): PARIS})) as fake, session() as http:
        assert isinstance(await Asking(http, fake)(1), Answer)
        fault = await Asking(http, fake)(2)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.SERVER_ERROR


async def test_a_busy_server_says_503() -> None:
    async with VllmFake(queue_limit=2) as fake, session() as http:
        fake.stall()
        ask_it = Asking(http, fake)
        waiting = await ask_it.in_flight(2)
        fault = await ask_it(9)
        fake.resume()
        assert all(isinstance(result, Answer) for result in await asyncio.gather(*waiting))
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.retry_after_s) == (FaultKind.OVERLOADED, None)
    assert recorded("queue_full")["answers"][0]["body"]["error"]["message"] in fault.words


async def test_a_draining_server_aborts_what_is_new_and_finishes_what_it_has() -> None:
    async with VllmFake() as fake, session() as http:
        fake.stall()
        ask_it = Asking(http, fake)
        before = await ask_it.in_flight(2)
        draining = asyncio.create_task(fake.drain())
        await asyncio.sleep(0)
        assert (await vllm.pulse(http, fake.url)).life is Life.ALIVE
        fault = await ask_it(9)
        fake.resume()
        await draining
        assert all(isinstance(result, Answer) for result in await asyncio.gather(*before))
        assert (await vllm.pulse(http, fake.url)).life is Life.CLOSED
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.ABORTED
    assert fault.answer is not None
    assert fault.answer.output_ids.tolist() == []


async def test_a_killed_engine_answers_500_and_refuses() -> None:
    async with VllmFake() as fake, session() as http:
        fake.stall()
        before = await Asking(http, fake).in_flight(3)
        await fake.kill_engine()
        faults = await asyncio.gather(*before)
        assert (await vllm.pulse(http, fake.url)).life is Life.CLOSED
    words = recorded("inflight_engine_sigkill")["answers"][0]["body"]["error"]["message"]
    assert all(isinstance(fault, Fault) and fault.kind is FaultKind.SERVER_ERROR for fault in faults)
    assert all(isinstance(fault, Fault) and words in fault.words for fault in faults)


async def test_a_terminated_server_answers_nobody_and_refuses() -> None:
    async with VllmFake() as fake, session() as http:
        fake.stall()
        before = await Asking(http, fake).in_flight(3)
        await fake.terminate()
        fake.resume()
        done, hanging = await asyncio.wait(before, timeout=0.1)
        assert (len(done), len(hanging)) == (0, 3)
        assert (await vllm.pulse(http, fake.url)).life is Life.CLOSED
        for task in hanging:
            task.cancel()
    assert fake.state is State.TERMINATED


async def test_a_stalled_engine_is_healthy_and_makes_no_tokens() -> None:
    async with VllmFake() as fake, session() as http:
        await Asking(http, fake)()
        fake.stall()
        waiting = await Asking(http, fake).in_flight(1)
        first, second = await vllm.pulse(http, fake.url), await vllm.pulse(http, fake.url)
        assert first == second
        assert (first.life, first.tokens) == (Life.ALIVE, fake.tokens)
        fake.resume()
        await asyncio.gather(*waiting)
        assert (await vllm.pulse(http, fake.url)).tokens == fake.tokens > (first.tokens or 0)


async def test_a_client_that_goes_away_is_generated_for_no_more() -> None:
    async with VllmFake() as fake, session() as http:
        fake.stall()
        (task,) = await Asking(http, fake).in_flight(1)
        task.cancel()
        while fake.flights:
            await asyncio.sleep(0.001)
        fake.resume()
        assert fake.tokens == 0


async def test_two_requests_with_one_id_are_both_answered() -> None:
    async with VllmFake() as fake, session() as http:
        results = await asyncio.gather(*(Asking(http, fake)(1) for _ in range(2)))
    assert all(isinstance(result, Answer) for result in results)
