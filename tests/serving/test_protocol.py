"""Validation, clipping and error words of `/generate`, held to a real server's recordings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.serving.protocol import GenerateRequest, Limits, read_generate
from draftmill.serving.refusals import Refusal

SMALL = Limits(context_length=64)
LARGE = Limits(context_length=8192)

REFUSED = [
    "err_bad_json", "err_body_is_list", "err_empty_ids", "err_ids_floats", "err_ids_null", "err_ids_strings",
    "err_max_new_negative", "err_max_new_string", "err_max_tokens", "err_no_body", "err_no_input",
    "err_prompt_plus_max_gt_context", "err_sampling_params_list_mismatch", "err_stop_token_ids_str",
    "err_temperature_negative", "err_text_content_type", "err_top_p_2", "misc_bool_id", "misc_max_new_1e9",
    "misc_max_new_float", "misc_rid_int",
]  # fmt: skip
REFUSED_BY_64 = [
    "ctx64_max28", "ctx64_prompt60_max1", "ctx64_prompt61_max1", "ctx64_prompt61_maxnull", "ctx64_prompt62_max1",
    "ctx64_prompt62_maxnull", "ctx64_prompt63_max1", "ctx64_prompt63_maxnull", "ctx64_prompt64_max1",
]  # fmt: skip
TAKEN_BY_64 = ["ctx64_max24", "ctx64_max25", "ctx64_max26", "ctx64_max27", "ctx64_maxNone", "ctx64_max_default"]
TRUNCATED = ["trunc_max500", "trunc_prompt58", "trunc_prompt59", "trunc_prompt63", "trunc_prompt64", "trunc_prompt70"]


def read(body: Any, limits: Limits = SMALL, **options: Any) -> GenerateRequest | Refusal:
    return read_generate(json.dumps(body).encode(), is_json=True, limits=limits, **options)


def taken(body: Any, limits: Limits = SMALL, **options: Any) -> GenerateRequest:
    request = read(body, limits, **options)
    assert isinstance(request, GenerateRequest), request
    return request


def refused(body: Any, limits: Limits = SMALL) -> str:
    refusal = read(body, limits)
    assert isinstance(refusal, Refusal)
    assert refusal.status == 400
    return json.dumps(refusal.body)


def replay(recording: dict[str, Any], limits: Limits, **options: Any) -> GenerateRequest | Refusal:
    request = recording["request"]
    raw = request["raw"].encode() if "raw" in request else json.dumps(request["json"]).encode()
    is_json = "application/json" in request.get("headers", {}).get("content-type", "application/json")
    return read_generate(raw, is_json=is_json, limits=limits, **options)


def same_error(ours: Any, theirs: Any) -> bool:
    """The same body; of the web layer's errors, whose text shows Python internals, kind and place."""
    if isinstance(theirs, dict) and theirs.get("object") == "error":
        kind = theirs["message"].split("'type': '")[1].split("'")[0]
        if kind == "string_type":  # a list of rids is an alternative there
            return "string_type" in ours["message"] and ours.keys() == theirs.keys()
        return f"'type': '{kind}'" in ours["message"] and {**ours, "message": ""} == {**theirs, "message": ""}
    return bool(ours == theirs)


@pytest.mark.parametrize(
    ("name", "limits"), [(name, LARGE) for name in REFUSED] + [(name, SMALL) for name in REFUSED_BY_64]
)
def test_refuses_as_recorded(recordings: dict[str, Any], name: str, limits: Limits) -> None:
    refusal = replay(recordings[name], limits)
    response = recordings[name]["response"]
    assert isinstance(refusal, Refusal)
    assert refusal.status == response["status"]
    assert same_error(refusal.body, response.get("body", response.get("body_text"))), refusal.body


@pytest.mark.parametrize(("name", "length"), [("err_prompt_eq_context", 8192), ("err_prompt_too_long", 8300)])
def test_a_prompt_as_long_as_the_context_is_refused_as_recorded(
    recordings: dict[str, Any], name: str, length: int
) -> None:
    refusal = read({"input_ids": [1] * length, "sampling_params": {"max_new_tokens": 1}}, LARGE)
    assert isinstance(refusal, Refusal)
    assert refusal.body == recordings[name]["response"]["body"]


@pytest.mark.parametrize("name", TAKEN_BY_64)
def test_clips_a_budget_as_recorded(recordings: dict[str, Any], name: str) -> None:
    request = replay(recordings[name], SMALL)
    assert isinstance(request, GenerateRequest)
    assert request.budget == recordings[name]["response"]["body"]["meta_info"]["finish_reason"]["length"]


def test_a_small_pool_clips_and_refuses_as_recorded(recordings: dict[str, Any]) -> None:
    pool = Limits(context_length=8192, pool=256)
    request = replay(recordings["pool256_max1000"], pool)
    assert isinstance(request, GenerateRequest)
    assert request.budget == 217
    refusal = replay(recordings["pool256_prompt300"], pool)
    assert isinstance(refusal, Refusal)
    assert refusal.body == recordings["pool256_prompt300"]["response"]["body"]


@pytest.mark.parametrize("name", TRUNCATED)
def test_auto_truncate_cuts_prompt_and_budget_as_recorded(recordings: dict[str, Any], name: str) -> None:
    request = replay(recordings[name], Limits(context_length=64, auto_truncate=True))
    body = recordings[name]["response"]["body"]
    assert isinstance(request, GenerateRequest)
    assert len(request.prompt_ids) == body["meta_info"]["prompt_tokens"]
    assert request.budget == body["meta_info"]["finish_reason"]["length"]
    assert list(request.asked_ids) == body["prompt_token_ids"]


def test_preferred_parameters_fill_what_is_absent_as_recorded(recordings: dict[str, Any]) -> None:
    preferred = {"max_new_tokens": 5, "stop_token_ids": [339], "temperature": 0}

    def sampling_of(name: str) -> GenerateRequest:
        request = replay(recordings[name], SMALL, preferred=preferred)
        assert isinstance(request, GenerateRequest)
        return request

    assert (sampling_of("pref_none").budget, sampling_of("pref_none").stop_ids) == (5, {339})
    assert (sampling_of("pref_override").budget, sampling_of("pref_override").stop_ids) == (8, {339})
    assert sampling_of("pref_override_stop").stop_ids == frozenset()
    assert sampling_of("pref_override_stop_null").stop_ids == frozenset()


@pytest.mark.parametrize("name", ["gen_unknown_toplevel", "gen_routing_headers", "err_top_k_0", "misc_stop_null"])
def test_takes_what_a_real_server_takes(recordings: dict[str, Any], name: str) -> None:
    assert isinstance(replay(recordings[name], LARGE), GenerateRequest)


@pytest.mark.parametrize("name", ["misc_rid_null", "gen_no_rid"])
def test_a_request_without_rid_gets_one(recordings: dict[str, Any], name: str) -> None:
    first, second = replay(recordings[name], LARGE), replay(recordings[name], LARGE)
    assert isinstance(first, GenerateRequest)
    assert isinstance(second, GenerateRequest)
    assert len(first.rid) == 32
    assert first.rid != second.rid


@pytest.mark.parametrize("key", ["stream", "text", "return_logprob"])
def test_what_these_servers_cannot_do_is_refused(key: str) -> None:
    assert key in refused({"input_ids": [1], key: "x" if key == "text" else True})


@pytest.mark.parametrize("ids", [[[1, 2]], [[1], [2]], [[]]])
def test_batches_are_refused(ids: list[list[int]]) -> None:
    assert "one sequence a request" in refused({"input_ids": ids})


def test_several_samples_are_refused() -> None:
    assert "n > 1" in refused({"input_ids": [1], "sampling_params": {"n": 2}})


@pytest.mark.parametrize("bad", [-1, 100, 2**31, 2**70])
def test_ids_outside_the_vocabulary_are_refused(bad: int) -> None:
    assert str(bad) in refused({"input_ids": [1, bad]}, Limits(64, vocabulary=100))


def test_ignore_eos_switches_stop_ids_off() -> None:
    body = {"input_ids": [1], "sampling_params": {"stop_token_ids": [5], "ignore_eos": True}}
    assert taken(body).stop_ids == frozenset()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    ids=json_values | st.lists(st.integers(0, 99), min_size=1, max_size=80),
    sampling=json_values
    | st.dictionaries(st.sampled_from(["max_new_tokens", "temperature", "top_p", "stop_token_ids", "n"]), json_values),
    rid=json_values,
)
def test_any_body_is_taken_within_the_limits_or_refused(ids: Any, sampling: Any, rid: Any) -> None:
    request = read({"input_ids": ids, "sampling_params": sampling, "rid": rid}, Limits(64, vocabulary=100))
    if isinstance(request, GenerateRequest):
        assert list(request.prompt_ids) == ids
        assert len(ids) <= 58
        assert 0 <= request.budget <= 64 - len(ids) - 2
    else:
        assert request.status in (400, 500)
