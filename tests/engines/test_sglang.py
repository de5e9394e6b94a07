"""The client against every recorded answer of `/generate`, and against answers no server should give."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.schema import completions_table, table_completions
from draftmill.engines import sglang
from draftmill.judging.judge import judge_one
from draftmill.judging.structure import Structure
from draftmill.recipe import Sampling
from draftmill.records import Answer, Completion, Fault, FaultKind, Reason, Row, Thinking
from draftmill.serving.sampling import FIELDS

SMOLLM2 = Structure("plain", Thinking.NONE, (), (), (2,), (1,), (198,), (198, 216), 49151, ())

UNREADABLE = [
    "gen_list_of_lists",
    "gen_list_of_lists_rids",
    "gen_list_of_one_list",
    "gen_n2",
    "gen_n2_rid",
    "gen_stream",
]
ABORTED = ["inflight_abort-waiting_client", "inflight_abort_queued-waiting_client"]

LONGEST_PROMPT_OF_64 = 58


def kind_of(name: str, status: int) -> FaultKind | None:
    """What the recorded answer is, by hand; None for an answer."""
    if status == 200:
        if name in UNREADABLE:
            return FaultKind.UNREADABLE
        return FaultKind.ABORTED if name in ABORTED else None
    return {
        400: FaultKind.REJECTED,
        401: FaultKind.UNAUTHORIZED,
        405: FaultKind.WRONG_SERVER,
        500: FaultKind.SERVER_ERROR,
        503: FaultKind.OVERLOADED,
    }[status]


def test_every_recording_is_what_it_is(exchange: Any) -> None:
    result = exchange.read()
    expected = kind_of(exchange.name, exchange.status)
    assert (result.kind if isinstance(result, Fault) else None) == expected


def test_an_answer_is_read_to_the_id_and_the_count(answered: Any) -> None:
    result, body = answered.read(), answered.body
    answer = result.answer if answered.name in ABORTED else result
    meta, finish = body["meta_info"], body["meta_info"]["finish_reason"]
    assert isinstance(answer, Answer)
    assert answer.output_ids.tolist() == body["output_ids"]
    assert len(answer.output_ids) == answer.completion_tokens == meta["completion_tokens"]
    assert answer.prompt_tokens == meta.get("prompt_tokens")
    assert (answer.finish_type, answer.matched, answer.finish_length) == (
        finish["type"],
        finish.get("matched"),
        finish.get("length"),
    )
    assert (answer.engine, answer.weight_version) == ("sglang 0.5.23", meta["weight_version"])
    echoed = body.get("prompt_token_ids")
    if echoed == answered.prompt_ids:
        assert answer.echo_ids is None
    else:
        assert answer.echo_ids is not None
        assert answer.echo_ids.tolist() == (echoed or [])


def test_an_error_keeps_the_servers_words_on_one_line(refused: Any) -> None:
    error = refused.body.get("error", refused.body.get("message"))
    message = error["message"] if isinstance(error, dict) else error
    words = refused.read().words
    assert words.startswith("HTTP 400: ")
    assert " ".join(message.split()).startswith(words.removeprefix("HTTP 400: "))
    assert "\n" not in words
    assert len(words) < 600


def test_an_abort_keeps_the_ids_so_far(recorded: Callable[[str], Any]) -> None:
    running, queued = (recorded(name).read() for name in ABORTED)
    assert (running.words, len(running.answer.output_ids), running.answer.finish_type) == ("Aborted", 31, "abort")
    assert (queued.words, len(queued.answer.output_ids)) == ("Abort in waiting queue", 0)
    assert queued.answer.prompt_tokens is None  # missing in the recording


@pytest.mark.parametrize("number", [58, 59, 63, 64, 70, 200])
def test_an_auto_truncated_prompt_is_an_answer_that_the_judge_refuses(
    recorded: Callable[[str], Any], number: int
) -> None:
    exchange = recorded(f"trunc_prompt{number}")
    assert len(exchange.prompt_ids) == number
    answer = exchange.read()
    assert answer.prompt_tokens == min(number, LONGEST_PROMPT_OF_64)
    verdict = judge_one(Completion(exchange.row, answer), SMOLLM2, on_truncated="keep", degenerate="off")
    assert verdict.reason == (Reason.PROMPT_MISMATCH if number > LONGEST_PROMPT_OF_64 else None)


def test_a_good_answer_is_good(recorded: Callable[[str], Any]) -> None:
    for name in ("gen_basic", "skiptok_generate", "gen_max3"):
        exchange = recorded(name)
        verdict = judge_one(Completion(exchange.row, exchange.read()), SMOLLM2, on_truncated="keep", degenerate="off")
        assert verdict.reason is None, name


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("meta_info", "id"), "another"),
        (("meta_info", "id"), None),
        (("output_ids", 0), True),
        (("output_ids", 0), 504.0),
        (("output_ids", 0), "504"),
        (("output_ids", 0), 2**31),
        (("output_ids", 0), 2**70),
        (("output_ids", 0), None),
        (("output_ids",), None),
        (("output_ids",), "504"),
        (("output_ids",), {"0": 504}),
        (("prompt_token_ids", 0), True),
        (("prompt_token_ids",), "1"),
        (("meta_info", "completion_tokens"), "8"),
        (("meta_info", "completion_tokens"), True),
        (("meta_info", "completion_tokens"), -1),
        (("meta_info", "completion_tokens"), 2**40),
        (("meta_info", "prompt_tokens"), 37.0),
        (("meta_info", "finish_reason"), None),
        (("meta_info", "finish_reason"), "stop"),
        (("meta_info", "finish_reason", "type"), "eos"),
        (("meta_info", "finish_reason", "type"), ["stop"]),
        (("meta_info", "finish_reason", "matched"), True),
        (("meta_info", "finish_reason", "matched"), [2]),
        (("meta_info", "finish_reason", "matched"), 2**64),
        (("meta_info", "weight_version"), 7),
        (("meta_info", "weight_version"), "half \ud83d"),
        (("meta_info",), None),
    ],
)
def test_an_answer_that_is_not_ours_is_unreadable(
    recorded: Callable[[str], Any], path: tuple[str | int, ...], value: Any
) -> None:
    exchange = recorded("gen_basic")
    result = exchange.read(changed(exchange.body, path, value))
    assert isinstance(result, Fault)
    assert (result.kind, result.answer) == (FaultKind.UNREADABLE, None)


@pytest.mark.parametrize("key", ["output_ids", "meta_info"])
def test_an_answer_without_ids_is_unreadable(recorded: Callable[[str], Any], key: str) -> None:
    exchange = recorded("gen_basic")
    result = exchange.read({name: value for name, value in exchange.body.items() if name != key})
    assert result.kind is FaultKind.UNREADABLE


@pytest.mark.parametrize("status", [401, 403])
def test_who_refuses_the_key_is_not_quoted(recorded: Callable[[str], Any], status: int) -> None:
    body = json.dumps({"error": {"message": "Incorrect API key provided: sekret"}}).encode()
    fault = sglang.read(status, {}, body, row=recorded("gen_basic").row, rid="r", engine="e")
    assert "sekret" not in repr(fault)


def test_a_page_without_a_message_is_not_quoted(page: Callable[[str], dict[str, Any]], recorded: Any) -> None:
    info = page("key_right_server_info")
    assert info["api_key"] == "sekret"
    body = json.dumps(info).encode()
    for status in (200, 400, 500):
        fault = sglang.read(status, {}, body, row=recorded("gen_basic").row, rid="r", engine="e")
        assert isinstance(fault, Fault)
        assert "sekret" not in repr(fault)


SAMPLING = Sampling(temperature=0.7, top_p=0.9, max_new_tokens=500, top_k=40, min_p=0.1, stop_token_ids=[9, 4])


def test_the_payload_is_ids_with_every_parameter_a_server_would_fill_in(recorded: Callable[[str], Any]) -> None:
    row = recorded("gen_basic").row
    body = json.loads(sglang.payload(row, SAMPLING, rid="f" * 32, model="m"))
    assert body["input_ids"] == row.prompt_ids.tolist()
    assert (body["rid"], body["stream"], body["return_prompt_token_ids"]) == ("f" * 32, False, True)
    assert "text" not in body
    parameters = body["sampling_params"]
    assert parameters["max_new_tokens"] == row.max_new_tokens
    assert (parameters["stop_token_ids"], parameters["ignore_eos"], parameters["stop"]) == ([4, 9], False, [])
    assert [parameters[name] for name in ("temperature", "top_p", "top_k", "min_p")] == [0.7, 0.9, 40, 0.1]
    assert parameters.keys() <= FIELDS.keys()  # an unknown one is a 400


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**31, max_value=2**80)
    | st.floats()
    | st.text(max_size=5)
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PATHS: list[tuple[str | int, ...]] = [
    ("output_ids",),
    ("output_ids", 0),
    ("output_ids", -1),
    ("prompt_token_ids",),
    ("prompt_token_ids", 3),
    ("meta_info",),
    *(("meta_info", key) for key in ("id", "finish_reason", "prompt_tokens", "completion_tokens", "weight_version")),
    *(("meta_info", "finish_reason", key) for key in ("type", "matched", "length", "message")),
]


def changed(body: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """A copy of a body with one value in it replaced."""
    spoiled = copy.deepcopy(body)
    place = spoiled
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return spoiled


def assert_usable(result: Answer | Fault, row: Row) -> None:
    """Whatever came: it can be judged, kept, and told in any table."""
    if isinstance(result, Fault):
        result.words.encode()
        assert "\n" not in result.words
        assert len(result.words) < 600
        if result.answer is None:
            return
    answer = result.answer if isinstance(result, Fault) else result
    assert answer is not None
    completion = Completion(row, answer)
    judge_one(completion, SMOLLM2, on_truncated="keep", degenerate="auto")
    (kept,) = table_completions(completions_table([completion]))
    assert kept.answer.output_ids.tolist() == answer.output_ids.tolist()
    assert kept.answer.matched == answer.matched


@given(path=st.sampled_from(PATHS), value=json_values, name=st.sampled_from(["gen_basic", "gen_max3", ABORTED[0]]))
def test_no_spoiled_answer_breaks_the_client(
    recorded: Callable[[str], Any], path: tuple[str | int, ...], value: Any, name: str
) -> None:
    exchange = recorded(name)
    if path[0] == "prompt_token_ids" and "prompt_token_ids" not in exchange.body:
        path = ("output_ids",)
    spoiled = changed(exchange.body, path, value)
    result = exchange.read(spoiled)
    assert_usable(result, exchange.row)
    if isinstance(result, Answer):
        assert result.output_ids.tolist() == spoiled["output_ids"]
