"""Every engine on the shelf sends and reads alike, whatever its protocol: one suite on recordings of real servers."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.schema import completions_table, table_completions
from draftmill.recipe import Sampling
from draftmill.records import Answer, Completion, Fault, FaultKind, Reason, Row

RID = "0123456789abcdef" * 2
"""The request that every good answer here is an answer to."""

SAMPLING = Sampling(
    temperature=0.5,
    top_p=0.9,
    max_new_tokens=99,
    top_k=41,
    min_p=0.125,
    repetition_penalty=1.25,
    presence_penalty=0.75,
    frequency_penalty=-0.25,
    stop_token_ids=[5, 2],
)


# The door


def test_the_whole_door_is_there(engine: Any) -> None:
    door = engine.door
    assert 0 <= door.CONTEXT_RESERVE <= door.PROMPT_RESERVE
    assert door.GENERATE.startswith("/")
    calls = ("is_ready", "pulse", "report", "tokenize", "tokenize_text", "abort")
    assert all(inspect.iscoroutinefunction(getattr(door, call)) for call in calls)
    assert [*inspect.signature(door.payload).parameters] == ["row", "sampling", "rid", "model"]
    assert [*inspect.signature(door.read).parameters] == ["status", "headers", "body", "row", "rid", "engine"]


# What is sent


def test_a_request_holds_the_ids_the_budget_and_every_sampling_value(engine: Any) -> None:
    body = engine.door.payload(engine.row, SAMPLING, rid=RID, model="m")
    assert isinstance(body, bytes)
    sent = json.loads(body)
    flat = {**sent, **sent.pop("sampling_params", {})}
    assert flat[engine.kit.sent_ids] == engine.row.prompt_ids.tolist()
    assert flat[engine.kit.sent_budget] == engine.row.max_new_tokens
    assert RID in flat.values()
    wanted = SAMPLING.model_dump(exclude={"samples", "max_new_tokens"}) | {"stop_token_ids": [2, 5]}
    assert {name: flat[name] for name in wanted} == wanted
    assert (flat["stop"], flat["ignore_eos"], flat["stream"]) == ([], False, False)


@given(ids=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50), budget=st.integers(1, 2**31 - 1))
def test_ids_go_out_exactly_as_they_are(engine: Any, ids: list[int], budget: int) -> None:
    row = Row("k", 0, "p", "id", "default", 0, np.array(ids, np.int32), budget, None, "file")
    sent = json.loads(engine.door.payload(row, SAMPLING, rid=RID, model="m"))
    assert sent[engine.kit.sent_ids] == ids
    assert {**sent, **sent.get("sampling_params", {})}[engine.kit.sent_budget] == budget


# What comes back


def test_a_good_answer_is_read_to_the_id(engine: Any) -> None:
    answer = engine.read(engine.good)
    assert isinstance(answer, Answer)
    assert answer.output_ids.tolist() == engine.ids
    assert answer.echo_ids is None
    assert (answer.prompt_tokens, answer.completion_tokens) == (37, 8)
    assert (answer.finish_type, answer.matched, answer.engine) == ("stop", 2, "engine 1")
    assert engine.verdict(answer) is None


def test_times_are_aware(engine: Any) -> None:
    # The column is timestamp[ms, UTC]: an answer must not carry a naive time.
    answer = engine.read(engine.good)
    assert isinstance(answer, Answer)
    assert answer.created_at.utcoffset() == timedelta(0)


def test_an_abort_is_a_fault_with_the_ids_so_far(engine: Any) -> None:
    for ids in ([504, 3575], []):
        body = engine.changed({engine.kit.finish: "abort", engine.kit.ids: ids})
        fault = engine.read(body)
        assert isinstance(fault, Fault)
        assert fault.kind is FaultKind.ABORTED
        assert fault.answer is not None
        assert (fault.answer.output_ids.tolist(), fault.answer.finish_type) == (ids, "abort")


def test_another_requests_answer_is_unreadable(engine: Any) -> None:
    for rid in ("another", RID[:-1], "", None, 7, [RID]):
        told = engine.kit.rid_form.format(rid) if isinstance(rid, str) else rid
        fault = engine.spoiled(engine.kit.rid, told)
        assert isinstance(fault, Fault)
        assert (fault.kind, fault.answer) == (FaultKind.UNREADABLE, None)


def test_a_missing_or_other_echo_is_kept_for_the_judge(engine: Any) -> None:
    ids = engine.row.prompt_ids.tolist()
    for echoed in (None, [], ids[:-1], [*ids, 1], ids[::-1]):
        answer = engine.spoiled(engine.kit.echo, echoed)
        assert isinstance(answer, Answer)
        assert answer.echo_ids is not None
        assert answer.echo_ids.tolist() == (echoed or [])
        assert engine.verdict(answer) is Reason.PROMPT_MISMATCH


def test_other_counts_are_kept_for_the_judge(engine: Any) -> None:
    assert engine.verdict(engine.spoiled(engine.kit.prompt_tokens, 36)) is Reason.PROMPT_MISMATCH
    assert engine.verdict(engine.spoiled(engine.kit.completion_tokens, 7)) is Reason.COUNT_MISMATCH


@pytest.mark.parametrize("value", [True, 504.0, "504", None, [504], 2**31, 2**63, 2**64, 2**70, -(2**70)])
@pytest.mark.parametrize("where", ["ids", "echo"])
def test_what_is_no_id_is_unreadable(engine: Any, where: str, value: Any) -> None:
    fault = engine.spoiled((*getattr(engine.kit, where), 0), value)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.UNREADABLE


@pytest.mark.parametrize("value", [True, "8", 8.0, -1, 2**31, 2**64, 2**70, float("nan"), float("inf"), [8]])
@pytest.mark.parametrize("where", ["prompt_tokens", "completion_tokens"])
def test_what_is_no_count_is_unreadable(engine: Any, where: str, value: Any) -> None:
    fault = engine.spoiled(getattr(engine.kit, where), value)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.UNREADABLE


@pytest.mark.parametrize("finish", ["eos", "repetition", "error", "", None, 1, ["stop"], {"type": "stop"}])
def test_another_finish_is_unreadable(engine: Any, finish: Any) -> None:
    fault = engine.spoiled(engine.kit.finish, finish)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.UNREADABLE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"7",
        b"NaN",
        b"<html>",
        b"\xff",
        b'{"meta_info": {}}',
        b'{"choices": []}',
        b'{"choices": [{"text": "another server\'s answer"}]}',
        b'{"object": "error", "message": "no"}',
        b"[" * 100_000,
        b'{"id":' * 100_000,
        b'{"error":' * 900 + b"1" + b"}" * 900,
    ],
)
def test_another_body_is_no_answer(engine: Any, body: bytes) -> None:
    fault = engine.read(body)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.UNREADABLE
    assert_tellable(fault)


def test_every_truncated_body_is_unreadable(engine: Any) -> None:
    raw = json.dumps(engine.good).encode()
    for cut in range(0, len(raw), 7):
        fault = engine.read(raw[:cut])
        assert isinstance(fault, Fault)
        assert fault.kind is FaultKind.UNREADABLE


def assert_tellable(fault: Fault) -> None:
    fault.words.encode()
    assert "\n" not in fault.words
    assert len(fault.words) < 600


STATUSES = {
    204: FaultKind.WRONG_SERVER,
    301: FaultKind.WRONG_SERVER,
    307: FaultKind.WRONG_SERVER,
    400: FaultKind.REJECTED,
    401: FaultKind.UNAUTHORIZED,
    403: FaultKind.UNAUTHORIZED,
    404: FaultKind.WRONG_SERVER,
    405: FaultKind.WRONG_SERVER,
    408: FaultKind.SERVER_ERROR,
    413: FaultKind.REJECTED,
    422: FaultKind.REJECTED,
    429: FaultKind.OVERLOADED,
    500: FaultKind.SERVER_ERROR,
    502: FaultKind.SERVER_ERROR,
    503: FaultKind.OVERLOADED,
    504: FaultKind.SERVER_ERROR,
}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
def test_a_status_alone_decides(engine: Any, status: int, kind: FaultKind) -> None:
    for body in (b"", b"whatever words", b'{"error": {"message": "queue is full, unauthorized"}}', engine.good):
        fault = engine.read(body, status=status)
        assert isinstance(fault, Fault)
        assert fault.kind is kind
    # Who refuses a key may quote it.
    told = engine.read(b"whatever words", status=status)
    assert isinstance(told, Fault)
    assert ("whatever words" in told.words) == (kind is not FaultKind.UNAUTHORIZED)


NOW = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "1e3"}, None),
        ({"Retry-After": "²"}, None),
        ({"Retry-After": "Mon, 99 Foo 2026 09:00:00 GMT"}, None),
        ({"Retry-After": "Mon, 30 Nov 99999999999 09:00:00 GMT"}, None),
        ({"Retry-After": "Mon, 30 Nov 2026 09:00:09 GMT", "Date": "Mon, 30 Nov 2026 09:00:00 GMT"}, 9.0),
        ({"Retry-After": "Monday, 30-Nov-26 09:00:09 GMT", "Date": "Mon, 30 Nov 2026 09:00:00 GMT"}, 9.0),
        ({"Retry-After": "Mon, 30 Nov 2026 09:00:09 -0000", "Date": "Mon, 30 Nov 2026 09:00:00 GMT"}, 9.0),
        ({"Retry-After": "Mon, 30 Nov 2026 08:00:00 GMT", "Date": "Mon, 30 Nov 2026 09:00:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(engine: Any, headers: dict[str, str], seconds: float | None) -> None:
    fault = engine.read(b"", status=429, headers=headers)
    assert isinstance(fault, Fault)
    assert fault.retry_after_s == seconds


def test_retry_after_as_a_date_without_a_date_counts_from_here(engine: Any) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    fault = engine.read(b"", status=503, headers={"Retry-After": format_datetime(soon, usegmt=True)})
    assert isinstance(fault, Fault)
    assert fault.retry_after_s is not None
    assert 3000 < fault.retry_after_s <= 3600


@given(
    body=st.binary(max_size=64) | st.from_regex(rb'\A[\[\]{}":,0-9a-zN]{0,40}\Z'),
    status=st.integers(100, 599),
    retry_after=st.text(max_size=12),
)
def test_nothing_whatever_breaks_the_client(engine: Any, body: bytes, status: int, retry_after: str) -> None:
    fault = engine.read(body, status=status, headers={"Retry-After": retry_after})
    assert isinstance(fault, Fault)
    assert_tellable(fault)


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


@given(data=st.data(), value=odd)
def test_no_spoiled_answer_breaks_the_client(engine: Any, data: st.DataObject, value: Any) -> None:
    path = data.draw(st.sampled_from(sorted(paths(engine.good), key=repr)))
    result = engine.spoiled(path, value)
    answer = result.answer if isinstance(result, Fault) else result
    if isinstance(result, Fault):
        assert_tellable(result)
    if answer is not None:
        completion = Completion(engine.row, answer)
        engine.verdict(answer)
        (kept,) = table_completions(completions_table([completion]))
        assert kept.answer.output_ids.tolist() == answer.output_ids.tolist()
        assert kept.answer.matched == answer.matched


def paths(body: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Every place in a body."""
    keys: Any = body if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ()
    return {(*path, key) for key in keys} | {found for key in keys for found in paths(body[key], (*path, key))}
