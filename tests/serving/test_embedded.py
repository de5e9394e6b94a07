"""The embedded engine with the real SmolLM2: its ids, its finish reasons, its manners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from draftmill.rendering.gguf import smollm2_gguf
from draftmill.serving.embedded import EmbeddedEngine, serve_embedded
from draftmill.serving.llama import Llama, LlamaSettings

VOCABULARY = 49152
END = 2
FRANCE = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198,
    1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip
HELLO = [1, 4093, 198, 19556, 2, 198, 1, 520, 9531, 198]
PROMPTS = [FRANCE, HELLO, [*FRANCE[:24], 2, 198, 1, 520, 9531, 198], [1, 4093, 198, 11, 33, 28], FRANCE[::-1]]


@pytest.fixture
async def alone() -> AsyncIterator[EmbeddedEngine]:
    """One slot, nothing cached: greedy ids that can be compared."""
    async with Llama(LlamaSettings(smollm2_gguf(), 1, 1024, cache_prompt=False)) as llama:
        engine = EmbeddedEngine(llama)
        await engine.open()
        yield engine
        await engine.close()


async def raw(engine: EmbeddedEngine, ids: list[int], budget: int) -> dict[str, Any]:
    """llama.cpp's own greedy answer, past the facade."""
    body = {"prompt": ids, "n_predict": budget, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    reply: dict[str, Any] = await engine.llama.ask("POST", "/completion", body)
    return reply


async def test_greedy_ids_are_llama_cpps_own(client: Any, alone: EmbeddedEngine) -> None:
    for prompt in PROMPTS:
        theirs = await raw(alone, prompt, 24)
        _, ours = await client.generate(alone.url, prompt, temperature=0, max_new_tokens=24)
        assert ours["output_ids"] == theirs["tokens"]
        assert ours["prompt_token_ids"] == prompt
        assert ours["meta_info"]["prompt_tokens"] == theirs["tokens_evaluated"] == len(prompt)
        expected = {"eos": "stop", "limit": "length"}[theirs["stop_type"]]
        assert ours["meta_info"]["finish_reason"]["type"] == expected


async def test_the_end_id_is_the_last_id_and_the_reason(client: Any, engine_url: str) -> None:
    _, body = await client.generate(engine_url, HELLO, temperature=0, max_new_tokens=64)
    assert body["output_ids"][-1] == END
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": END}
    assert body["meta_info"]["completion_tokens"] == len(body["output_ids"])


async def test_an_end_id_that_fills_the_budget_is_a_stop(client: Any, alone: EmbeddedEngine) -> None:
    whole = (await raw(alone, HELLO, 64))["tokens"]
    _, body = await client.generate(alone.url, HELLO, temperature=0, max_new_tokens=len(whole))
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": END}
    _, body = await client.generate(alone.url, HELLO, temperature=0, max_new_tokens=len(whole) - 1)
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": len(whole) - 1}
    assert body["output_ids"] == whole[:-1]


@pytest.mark.parametrize("more_stop_ids", [[], [END], [0, 17]])
async def test_stop_ids_end_the_same_ids_earlier(client: Any, alone: EmbeddedEngine, more_stop_ids: list[int]) -> None:
    whole = (await raw(alone, FRANCE, 16))["tokens"]
    stop = whole[5]
    sampling = {"temperature": 0, "max_new_tokens": 16, "stop_token_ids": [stop, *more_stop_ids]}
    _, body = await client.generate(alone.url, FRANCE, **sampling)
    assert body["output_ids"] == whole[: whole.index(stop) + 1]
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


async def test_a_stop_id_that_does_not_come_changes_nothing(client: Any, alone: EmbeddedEngine) -> None:
    sampled = {"temperature": 1.0, "sampling_seed": 11, "max_new_tokens": 24}
    _, without = await client.generate(alone.url, FRANCE, **sampled)
    absent = next(token_id for token_id in range(1000, 2000) if token_id not in without["output_ids"])
    _, with_stop = await client.generate(alone.url, FRANCE, **sampled, stop_token_ids=[absent])
    assert with_stop["output_ids"] == without["output_ids"]


async def test_ids_inside_unfinished_characters_are_kept(client: Any, alone: EmbeddedEngine) -> None:
    party = (await client.ask("POST", f"{alone.url}/tokenize", json={"prompt": "😀🎉🦄" * 4}))[1]["tokens"]
    prompt = [1, 4093, 198, *party, 2, 198, 1, 520, 9531, 198, *party[:5]]
    theirs = await raw(alone, prompt, 20)
    _, ours = await client.generate(alone.url, prompt, temperature=0, max_new_tokens=20)
    assert ours["output_ids"] == theirs["tokens"]
    assert ours["meta_info"]["completion_tokens"] == theirs["tokens_predicted"]


async def test_sampling_is_what_was_asked_for(client: Any, alone: EmbeddedEngine) -> None:
    async def ids(**sampling: Any) -> list[int]:
        _, body = await client.generate(alone.url, FRANCE, max_new_tokens=24, **sampling)
        output_ids: list[int] = body["output_ids"]
        return output_ids

    greedy = await ids(temperature=0)
    assert await ids(temperature=1.5, top_k=1) == greedy
    assert await ids(temperature=1.5, top_p=1e-6, sampling_seed=3) == greedy
    assert await ids(temperature=1.5, min_p=1.0, sampling_seed=3) == greedy
    hot = await ids(temperature=1.5, sampling_seed=3)
    assert hot != greedy
    assert await ids(temperature=1.5, sampling_seed=3) == hot
    assert await ids(temperature=1.5, sampling_seed=4) != hot
    assert (await ids(temperature=0, logit_bias={str(greedy[0]): -100}))[0] != greedy[0]
    repeated = await ids(temperature=0, repetition_penalty=2.0)
    assert not set(repeated[:-1]) & set(FRANCE[:-6])


async def test_a_budget_of_zero_gives_no_ids(client: Any, engine_url: str) -> None:
    _, body = await client.generate(engine_url, FRANCE, max_new_tokens=0)
    assert (body["output_ids"], body["meta_info"]["finish_reason"]) == ([], {"type": "length", "length": 0})


async def test_the_longest_prompt_and_budget_fit(client: Any) -> None:
    async with Llama(LlamaSettings(smollm2_gguf(), 2, context_length=100)) as llama:
        engine = EmbeddedEngine(llama)
        await engine.open()
        prompt = (FRANCE * 3)[:94]
        _, body = await client.generate(engine.url, prompt, temperature=0, max_new_tokens=6, ignore_eos=True)
        status, refused = await client.generate(engine.url, [*prompt, 1], max_new_tokens=1)
        await engine.close()
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 4}
    assert len(body["output_ids"]) == 4
    assert (status, refused["error"]["message"][:12]) == (400, "Input length")


@pytest.mark.parametrize("bad", [-1, VOCABULARY, 2**31])
async def test_an_id_outside_the_vocabulary_is_refused_and_the_engine_lives(
    client: Any, engine_url: str, bad: int
) -> None:
    status, body = await client.generate(engine_url, [*FRANCE, bad])
    assert (status, str(bad) in body["error"]["message"]) == (400, True)
    assert (await client.generate(engine_url, FRANCE, max_new_tokens=1))[0] == 200


@pytest.mark.parametrize(
    "sampling",
    [{"stop": ["x"]}, {"min_new_tokens": 3}, {"regex": "a+"}, {"json_schema": "{}"}, {"custom_params": {"a": 1}}],
)
async def test_what_llama_cpp_cannot_honour_is_refused(client: Any, engine_url: str, sampling: dict[str, Any]) -> None:
    status, body = await client.generate(engine_url, FRANCE, **sampling)
    assert status == 400
    assert next(iter(sampling)) in body["error"]["message"]


async def test_pages_say_that_it_is_a_development_engine(client: Any, engine_url: str) -> None:
    _, info = await client.ask("GET", f"{engine_url}/server_info")
    assert info["version"].startswith("draftmill-embedded ")
    assert "development" in info["version"]
    assert (info["reasoning_parser"], info["allow_auto_truncate"], info["api_key"]) == (None, False, None)
    assert (info["max_req_input_len"], info["max_total_num_tokens"]) == (2042, 8 * 2048)
    _, model = await client.ask("GET", f"{engine_url}/model_info")
    assert model["served_model_name"] == "SmolLM2-135M-Instruct"
    _, models = await client.ask("GET", f"{engine_url}/v1/models")
    assert models["data"][0]["max_model_len"] == 2048


@pytest.mark.parametrize("path", ["health", "health_generate", "ready"])
async def test_signs_of_life(client: Any, engine_url: str, path: str) -> None:
    assert (await client.ask("GET", f"{engine_url}/{path}"))[0] == 200


async def test_messages_are_tokenized_as_the_real_server_does(
    client: Any, engine_url: str, recordings: dict[str, Any]
) -> None:
    for name in ("info_tokenize_prompt", "info_tokenize_messages", "info_v1_tokenize_messages_nogen"):
        request = recordings[name]["request"]
        _, ours = await client.ask("POST", engine_url + request["path"], json=request["json"])
        theirs = recordings[name]["response"]["body"]
        assert (ours["tokens"], ours["count"]) == (theirs["tokens"], theirs["count"])


async def test_more_requests_than_slots_all_get_answers(client: Any, engine_url: str) -> None:
    prompts = [[*HELLO[:3], n, *HELLO[4:]] for n in range(500, 520)]
    results = await asyncio.gather(*(client.generate(engine_url, p, temperature=0, max_new_tokens=4) for p in prompts))
    assert [body["prompt_token_ids"] for _, body in results] == prompts


LONG = {"ignore_eos": True, "max_new_tokens": 980}


async def busy(engine: EmbeddedEngine) -> bool:
    return any(slot["is_processing"] for slot in await engine.llama.ask("GET", "/slots"))


async def generating(client: Any, engine: EmbeddedEngine, rid: str) -> asyncio.Task[Any]:
    task = asyncio.create_task(client.generate(engine.url, FRANCE, rid=rid, **LONG))
    while not await busy(engine):
        await asyncio.sleep(0.01)
    return task


async def freed_early(engine: EmbeddedEngine) -> bool:
    """Whether the slot came free before the budget was used up.

    Asked at intervals longer than a second: llama.cpp looks for a lost client only after 1 s without any result,
    and its page of slots is a result too.
    """
    before = engine.limits.context_length
    while await busy(engine):
        await asyncio.sleep(1.3)
    slot = (await engine.llama.ask("GET", "/slots"))[0]
    return bool(slot["n_prompt_tokens"] < before - 50)


async def test_a_client_that_goes_away_ends_the_generation(client: Any, alone: EmbeddedEngine) -> None:
    task = await generating(client, alone, "gone")
    task.cancel()
    assert await freed_early(alone)


async def test_an_abort_answers_at_once_and_ends_the_generation(
    client: Any, alone: EmbeddedEngine, recordings: dict[str, Any]
) -> None:
    task = await generating(client, alone, "abort-me-1")
    queued = asyncio.create_task(client.generate(alone.url, FRANCE, rid="abort-me-10", **LONG))
    while len(alone.flights) < 2:
        await asyncio.sleep(0.01)
    await client.ask("POST", f"{alone.url}/abort_request", json={"rid": "abort-me-1"})
    status, body = await task
    theirs = recordings["inflight_abort"]["waiting_client"]["body"]["meta_info"]["finish_reason"]
    assert (status, body["meta_info"]["finish_reason"], body["output_ids"]) == (200, theirs, [])
    _, body = await queued
    assert body["meta_info"]["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    assert await freed_early(alone)


async def test_serving_ends_when_it_is_cancelled() -> None:
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_embedded(slots=1, context_length=256, ready=url.set_result))
    assert (await url).startswith("http://127.0.0.1:")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
