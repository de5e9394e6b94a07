"""Log-probabilities of a prompt: the engines' door, on what real servers answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.arrays import ids_array
from draftmill.engines import sglang, vllm
from draftmill.engines._scores import scores
from draftmill.records import Fault, FaultKind, Scores

GOLDEN = Path(__file__).parents[1] / "golden" / "scores"
RECORDED = {
    "sglang": json.loads((GOLDEN / "sglang.json").read_text()),
    "vllm": json.loads((GOLDEN / "vllm.json").read_text()),
}
ENGINES = {"sglang": sglang, "vllm": vllm}
START = 37
"""Ids of the recordings' prompt; the answer of 8 ids follows."""


def asked(name: str) -> dict[str, Any]:
    return dict(RECORDED[name]["request"]["json"])


def read(name: str, body: Any, status: int = 200) -> Scores | Fault:
    ids = asked(name)["input_ids" if name == "sglang" else "prompt"]
    raw = json.dumps(body).encode()
    rid = asked(name)["rid" if name == "sglang" else "request_id"]
    return ENGINES[name].read_scores(status, {}, raw, ids_T=ids_array("ids", ids), start=START, rid=rid)


def body(name: str) -> Any:
    return json.loads(json.dumps(RECORDED[name]["response"]["body"]))


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_is_asked_is_what_was_recorded(engine: str) -> None:
    sent = asked(engine)
    ids = ids_array("ids", sent["input_ids" if engine == "sglang" else "prompt"])
    rid = sent["rid" if engine == "sglang" else "request_id"]
    assert json.loads(ENGINES[engine].score_payload(ids, START, rid=rid, model="smol")) == sent


def test_the_generated_ids_and_only_they_are_scored(engine: str) -> None:
    found = read(engine, body(engine))
    assert isinstance(found, Scores)
    assert found.chosen_S == pytest.approx(
        [-1.8643, -0.0198, -0.0114, -0.0111, -0.0385, -0.0488, -0.5703, -0.2453], abs=0.06
    )
    assert found.top_ids_SK.shape == found.top_logprobs_SK.shape == (8, ENGINES[engine].NUM_TOP)
    assert found.top_ids_SK[:, 0].tolist() == [504, 3575, 282, 4649, 314, 7042, 30, 2]
    assert (np.diff(found.top_logprobs_SK, axis=1) <= 0).all()
    assert (found.top_logprobs_SK[:, 0] == found.chosen_S).all()


def without_sglang(found: Any) -> None:
    del found["meta_info"]["input_token_logprobs"]


def other_ids_sglang(found: Any) -> None:
    found["meta_info"]["input_token_logprobs"][3][1] += 1


def cut_sglang(found: Any) -> None:
    found["meta_info"]["prompt_tokens"] -= 1


def likelier_than_certain_sglang(found: Any) -> None:
    found["meta_info"]["input_token_logprobs"][3][0] = 0.5


def too_few_sglang(found: Any) -> None:
    found["meta_info"]["input_top_logprobs"].pop()


def without_vllm(found: Any) -> None:
    found["choices"][0]["prompt_logprobs"] = None


def other_ids_vllm(found: Any) -> None:
    found["choices"][0]["prompt_token_ids"][3] += 1


def not_there_vllm(found: Any) -> None:
    found["choices"][0]["prompt_logprobs"][40] = {"7": {"logprob": -1.0, "rank": 1}}


@pytest.mark.parametrize("spoil", [without_sglang, other_ids_sglang, cut_sglang, likelier_than_certain_sglang])
def test_an_answer_that_does_not_score_these_ids_is_a_fault(spoil: Callable[[Any], None]) -> None:
    found = body("sglang")
    spoil(found)
    result = read("sglang", found)
    assert isinstance(result, Fault)
    assert result.kind is FaultKind.UNREADABLE


@pytest.mark.parametrize("spoil", [without_vllm, other_ids_vllm, not_there_vllm])
def test_the_same_of_vllm(spoil: Callable[[Any], None]) -> None:
    found = body("vllm")
    spoil(found)
    result = read("vllm", found)
    assert isinstance(result, Fault)
    assert result.kind is FaultKind.UNREADABLE


def test_fewer_lists_than_ids_are_a_fault() -> None:
    found = body("sglang")
    too_few_sglang(found)
    assert isinstance(read("sglang", found), Fault)


def test_a_refusal_is_a_fault_by_its_status(engine: str) -> None:
    result = read(engine, {"error": {"message": "no"}}, status=400)
    assert isinstance(result, Fault)
    assert result.kind is FaultKind.REJECTED


def test_what_json_cannot_say_is_no_probability_at_all() -> None:
    found = scores(ids_array("ids", [5]), [(5, None)], [[(1, -0.1), (2, -3.0)]], num_top=3)
    assert found.chosen_S.tolist() == [-np.inf]
    assert found.top_ids_SK[0].tolist() == [1, 2, -1]
    assert found.top_logprobs_SK[0, 2] == -np.inf
