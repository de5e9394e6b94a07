"""The fakes' log-probabilities of a prompt, held to what real servers answered to the same request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import in_order
from draftmill.serving.fake_scores import sure_of
from draftmill.serving.vllm_fake import VllmFake
from draftmill.serving.vllm_protocol import VllmLimits

RECORDED = {
    name: json.loads((Path(__file__).parents[1] / "golden" / "scores" / f"{name}.json").read_text())
    for name in ("sglang", "vllm")
}
ANSWER = [504, 3575, 282, 4649, 314, 7042, 30, 2]
START = 37


async def asked(url: str, name: str, **changes: Any) -> tuple[int, Any]:
    request = RECORDED[name]["request"]
    async with (
        aiohttp.ClientSession() as http,
        http.post(url + request["path"], json=request["json"] | changes) as answer,
    ):
        return answer.status, await answer.json()


def form(value: Any) -> Any:
    """A value's shape, without its numbers: null and lists of what they hold first and last."""
    if isinstance(value, list):
        return [form(value[0]), form(value[-1]), len(value)] if value else []
    return "number" if isinstance(value, int | float) else value


async def test_sglangs_lists_have_the_recorded_form(fake_server: Callable[..., FakeServer]) -> None:
    meta = RECORDED["sglang"]["response"]["body"]["meta_info"]
    answers = in_order([ANSWER])
    async with fake_server(answers, scorer=sure_of(answers)) as fake:
        status, told = await asked(fake.url, "sglang", top_logprobs_num=20)
    assert status == 200
    assert told["output_ids"] == RECORDED["sglang"]["response"]["body"]["output_ids"]
    mine = told["meta_info"]
    assert form(mine["input_token_logprobs"]) == form(meta["input_token_logprobs"])
    assert [token_id for _, token_id, _ in mine["input_token_logprobs"]] == [
        token_id for _, token_id, _ in meta["input_token_logprobs"]
    ]
    assert [choices[0][1] for choices in mine["input_top_logprobs"][1:]] == [
        choices[0][1] for choices in meta["input_top_logprobs"][1:]
    ]
    assert all(len(choices) == 20 for choices in mine["input_top_logprobs"][1:])
    assert mine["finish_reason"] == meta["finish_reason"]


async def test_vllms_mappings_have_the_recorded_form() -> None:
    recorded = RECORDED["vllm"]["response"]["body"]["choices"][0]["prompt_logprobs"]
    answers = in_order([ANSWER])
    limits = VllmLimits(2048, 49152)
    async with VllmFake(
        answers=answers, model="smol", limits=limits, scorer=sure_of(answers), scored_from=lambda ids: START
    ) as fake:
        status, told = await asked(fake.url, "vllm")
        too_many, _ = await asked(fake.url, "vllm", prompt_logprobs=21)
    assert (status, too_many) == (200, 400)
    mine = told["choices"][0]["prompt_logprobs"]
    assert len(mine) == len(recorded)
    assert mine[0] is recorded[0] is None
    for place in range(START, len(recorded)):
        assert {frozenset(each) for each in mine[place].values()} == {
            frozenset(each) for each in recorded[place].values()
        }
        assert len(mine[place]) == len(recorded[place]) == 20
        first = [min(found.items(), key=lambda item: item[1]["rank"])[0] for found in (mine[place], recorded[place])]
        assert first[0] == first[1]


@pytest.mark.parametrize("name", ["sglang", "vllm"])
async def test_without_a_scorer_it_is_refused(fake_server: Callable[..., FakeServer], name: str) -> None:
    vllm = VllmFake(model="smol", limits=VllmLimits(2048, 49152))
    async with fake_server() if name == "sglang" else vllm as fake:
        status, _ = await asked(fake.url, name)
    assert status == 400
