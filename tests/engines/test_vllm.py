"""The client against every recorded answer of a real vLLM 0.32.0's `/v1/completions`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill.arrays import ids_array
from draftmill.engines import vllm
from draftmill.judging.judge import judge_one
from draftmill.judging.structure import Structure
from draftmill.recipe import Sampling
from draftmill.records import Answer, Completion, Fault, FaultKind, Reason, Row, Thinking

RECORDINGS = Path(__file__).parents[1] / "golden" / "vllm"
CAPITAL = json.loads((RECORDINGS / "gen_basic.json").read_text())["request"]["json"]["prompt"]
"""The prompt of the recordings that do not say theirs, or that send no ids."""

SMOLLM2 = Structure("plain", Thinking.NONE, (), (), (2,), (1,), (198,), (198, 216), 49151, ())

UNREADABLE = {
    "accepted_string_ids",  # two choices: taken as texts
    "accepted_string_number_ids",
    "gen_echo_no_ids",  # token_ids null
    "gen_list_of_lists",
    "gen_n2",
    "gen_repetition_detection",  # finish_reason repetition
    "gen_return_token_ids_off",
    "gen_stream",
    "gen_use_beam_search",
}
ABORTED = {"dev_pause_abort", "inflight_abort_completions", "inflight_abort_queued"}


@dataclass(frozen=True)
class Exchange:
    """One answer: what was asked, what came. `body` is a str where it was no JSON."""

    name: str
    asked: dict[str, Any]
    status: int
    body: Any

    @property
    def rid(self) -> str:
        told = self.body.get("id") if isinstance(self.body, dict) else None
        return told.removeprefix("cmpl-") if isinstance(told, str) else "r"

    @property
    def row(self) -> Row:
        prompt, budget = self.asked.get("prompt"), self.asked.get("max_tokens")
        flat = isinstance(prompt, list) and bool(prompt) and all(type(item) is int for item in prompt)
        ids = ids_array("prompt", prompt if flat and max(prompt) < 2**31 else CAPITAL)
        return Row("k", 0, "p", "id", "default", 0, ids, budget if type(budget) is int else 1000, None, "prompts.jsonl")

    def read(self) -> Answer | Fault:
        raw = self.body if isinstance(self.body, str) else json.dumps(self.body)
        return vllm.read(self.status, {}, raw.encode(), row=self.row, rid=self.rid, engine="vllm 0.32.0")

    @property
    def reason(self) -> Reason | None:
        """What the judge makes of it."""
        result = self.read()
        assert isinstance(result, Answer)
        return judge_one(Completion(self.row, result), SMOLLM2, on_truncated="keep", degenerate="off").reason


def exchanges() -> Iterator[Exchange]:
    for path in sorted(RECORDINGS.glob("*.json")):
        found = json.loads(path.read_text())
        if "answers" in found:
            answers, asked, path_asked = found["answers"], {}, vllm.GENERATE
        else:
            request = found["request"]
            answers, asked, path_asked = [found["response"]], request.get("json"), request["path"]
        if path_asked == vllm.GENERATE:
            for answer in answers:
                body = answer.get("body", answer.get("body_text"))
                yield Exchange(path.stem, asked if isinstance(asked, dict) else {}, answer["status"], body)


EXCHANGES = list(exchanges())
BY_NAME = {exchange.name: exchange for exchange in EXCHANGES}


def every(*, status: int | None = None, but: frozenset[str] | set[str] = frozenset()) -> pytest.MarkDecorator:
    chosen = [found for found in EXCHANGES if status in (None, found.status) and found.name not in but]
    return pytest.mark.parametrize("recording", chosen, ids=[found.name for found in chosen])


def kind_of(exchange: Exchange) -> FaultKind | None:
    """What the recorded answer is, by hand; None for an answer."""
    if exchange.status == 200:
        if exchange.name in UNREADABLE:
            return FaultKind.UNREADABLE
        return FaultKind.ABORTED if exchange.name in ABORTED else None
    return {
        400: FaultKind.REJECTED,
        401: FaultKind.UNAUTHORIZED,
        404: FaultKind.WRONG_SERVER,
        405: FaultKind.WRONG_SERVER,
        500: FaultKind.SERVER_ERROR,
        503: FaultKind.OVERLOADED,
    }[exchange.status]


@every()
def test_every_recording_is_what_it_is(recording: Exchange) -> None:
    result = recording.read()
    assert (result.kind if isinstance(result, Fault) else None) == kind_of(recording)


@every(status=200, but=UNREADABLE)
def test_an_answer_is_read_to_the_id_and_the_count(recording: Exchange) -> None:
    result = recording.read()
    answer = result.answer if isinstance(result, Fault) else result
    assert answer is not None
    (choice,), usage = recording.body["choices"], recording.body["usage"]
    assert answer.output_ids.tolist() == choice["token_ids"]
    assert len(answer.output_ids) == answer.completion_tokens == usage["completion_tokens"]
    assert answer.prompt_tokens == usage["prompt_tokens"]
    assert answer.finish_type == choice["finish_reason"]
    assert answer.finish_length == (len(choice["token_ids"]) if choice["finish_reason"] == "length" else None)
    assert (answer.engine, answer.weight_version) == ("vllm 0.32.0", None)
    if choice["prompt_token_ids"] == recording.row.prompt_ids.tolist():
        assert answer.echo_ids is None
    else:
        assert answer.echo_ids is not None
        assert answer.echo_ids.tolist() == choice["prompt_token_ids"]


@every(status=400)
def test_an_error_keeps_the_servers_words_on_one_line(recording: Exchange) -> None:
    result = recording.read()
    assert isinstance(result, Fault)
    said = result.words.removeprefix("HTTP 400: ")
    assert " ".join(recording.body["error"]["message"].split()).startswith(said)
    assert 0 < len(said) <= 500


@pytest.mark.parametrize(
    ("name", "matched", "length"),
    [
        ("gen_basic", 2, None),  # stop_reason null: the main end id
        ("gen_max_exactly_eos", 2, None),
        ("gen_stop_token_ids_eos", 2, None),
        ("gen_ignore_eos_stop_eos", 2, None),
        ("gen_stop_token_ids", 282, None),
        ("gen_stop_string", "France", None),
        ("gencfg_second_eos", 30, None),
        ("skiptok_basic", 2, None),
        ("gen_max3", None, 3),
        ("edge_prompt_2040_max9", None, 8),  # clipped to the context
        ("override_max_300", None, 200),  # clipped by the server's own flag
        ("gen_ignore_eos", None, 20),
    ],
)
def test_what_ended_an_answer(name: str, matched: int | str | None, length: int | None) -> None:
    result = BY_NAME[name].read()
    assert isinstance(result, Answer)
    assert (result.matched, result.finish_length) == (matched, length)


def test_an_abort_keeps_the_ids_so_far() -> None:
    running, waiting = BY_NAME["inflight_abort_completions"].read(), BY_NAME["inflight_abort_queued"].read()
    assert isinstance(running, Fault)
    assert isinstance(waiting, Fault)
    assert running.answer is not None
    assert waiting.answer is not None
    assert (len(running.answer.output_ids), running.answer.matched) == (47, None)
    assert (len(waiting.answer.output_ids), waiting.answer.matched) == (0, None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gen_basic", None),
        ("gen_max3", None),
        ("skiptok_basic", None),
        ("override_max_300", Reason.AFTER_END_OF_TURN),  # ignore_eos went past it; the count of 200 is true
        ("gen_stop_string", Reason.NO_END_OF_TURN),
        ("gencfg_second_eos", Reason.NO_END_OF_TURN),  # 30 ends no turn of this structure
        ("edge_truncate_minus1", Reason.PROMPT_MISMATCH),
        ("gen_truncate_prompt", Reason.PROMPT_MISMATCH),
        ("accepted_bool_ids", Reason.PROMPT_MISMATCH),
    ],
)
def test_the_judge_sees_what_was_done(name: str, reason: Reason | None) -> None:
    assert BY_NAME[name].reason == reason


def test_the_header_of_a_proxy_wins_over_the_request_id() -> None:
    exchange = BY_NAME["gen_both_request_ids"]
    raw = json.dumps(exchange.body).encode()
    result = vllm.read(200, {}, raw, row=exchange.row, rid=exchange.asked["request_id"], engine="e")
    assert isinstance(result, Fault)
    assert result.kind is FaultKind.UNREADABLE
    assert "cmpl-hdr-0002" in result.words


def test_a_null_reason_without_ids_matches_nothing() -> None:
    exchange = BY_NAME["gen_basic"]
    body = json.loads(json.dumps(exchange.body))
    body["choices"][0] |= {"token_ids": []}
    result = vllm.read(200, {}, json.dumps(body).encode(), row=exchange.row, rid=exchange.rid, engine="e")
    assert isinstance(result, Answer)
    assert result.matched is None


def test_an_id_that_is_not_the_last_stays_for_the_judge() -> None:
    exchange = BY_NAME["gen_stop_token_ids"]
    body = json.loads(json.dumps(exchange.body))
    body["choices"][0]["stop_reason"] = 504
    result = vllm.read(200, {}, json.dumps(body).encode(), row=exchange.row, rid=exchange.rid, engine="e")
    assert isinstance(result, Answer)
    assert result.matched == 504


SAMPLING = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=500, top_k=40, min_p=0.1, stop_token_ids=[9, 4])


def test_the_payload_names_every_parameter_that_the_server_would_fill_in() -> None:
    row = BY_NAME["gen_basic"].row
    assert json.loads(vllm.payload(row, SAMPLING, rid="f" * 32, model="smol")) == {
        "model": "smol",
        "prompt": row.prompt_ids.tolist(),
        "request_id": "f" * 32,
        "return_token_ids": True,
        "max_tokens": row.max_new_tokens,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "min_tokens": 0,
        "stop": [],
        "stop_token_ids": [4, 9],
        "ignore_eos": False,
        "n": 1,
        "stream": False,
        "echo": False,
        "add_special_tokens": False,
        "skip_special_tokens": False,
    }
