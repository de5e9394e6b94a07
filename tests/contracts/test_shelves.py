"""Every plugin on every shelf keeps its door's promise; a new file is found by itself."""

from __future__ import annotations

import inspect
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from draftmill import plugins
from draftmill.errors import RecipeError
from draftmill.recipe import Sampling
from draftmill.records import Answer, Fault, FaultKind, Row

ROW = Row("k", 0, "p", "id", "default", 0, np.array([1, 2, 3], np.int32), 7, None, "file")
SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_new_tokens=99, stop_token_ids=[5, 2])
RID = "0" * 32


def shelf(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", plugins.names(name))


def read(plugin, status: int, body: bytes) -> Answer | Fault:
    return plugin.read(status, {}, body, row=ROW, rid=RID, engine="engine 1")


@shelf("engines")
def test_an_engine_sends_ids_budget_and_every_sampling_value(name: str) -> None:
    body = json.dumps(plugins.load("engines", name).payload(ROW, SAMPLING, rid=RID))
    sent = json.loads(body)
    flat = {**sent, **sent.get("sampling_params", {})}
    assert [1, 2, 3] in flat.values()
    assert {0.5, 0.9, 7} <= {value for value in flat.values() if isinstance(value, int | float)}
    assert sorted(SAMPLING.stop_token_ids) in flat.values()
    assert RID in flat.values()


@shelf("engines")
@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"{}", b'"text"', b"<html>", b'{"meta_info": {}}', b"\xff"]
)
def test_an_engine_never_takes_another_body_for_an_answer(name: str, body: bytes) -> None:
    result = read(plugins.load("engines", name), 200, body)
    assert isinstance(result, Fault)
    assert result.kind is FaultKind.UNREADABLE


@shelf("engines")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, FaultKind.REJECTED),
        (401, FaultKind.UNAUTHORIZED),
        (403, FaultKind.UNAUTHORIZED),
        (404, FaultKind.WRONG_SERVER),
        (429, FaultKind.OVERLOADED),
        (500, FaultKind.SERVER_ERROR),
        (502, FaultKind.SERVER_ERROR),
        (503, FaultKind.OVERLOADED),
    ],
)
def test_an_engine_names_faults_by_status(name: str, status: int, kind: FaultKind) -> None:
    result = read(plugins.load("engines", name), status, b"whatever words")
    assert isinstance(result, Fault)
    assert result.kind is kind
    # A server that refuses a key may quote it.
    assert ("whatever words" in result.words) == (kind is not FaultKind.UNAUTHORIZED)


@shelf("engines")
def test_an_engine_has_the_whole_door(name: str) -> None:
    plugin = plugins.load("engines", name)
    assert 0 <= plugin.CONTEXT_RESERVE <= plugin.PROMPT_RESERVE
    assert plugin.GENERATE.startswith("/")
    assert all(inspect.iscoroutinefunction(getattr(plugin, call)) for call in ("is_ready", "report", "abort"))


@shelf("sources")
def test_a_source_sniffs_and_reads(name: str, tmp_path: Path) -> None:
    plugin = plugins.load("sources", name)
    assert plugin.sniff("notes.txt", b"just some words\n") is False
    assert inspect.isgeneratorfunction(plugin.read) or callable(plugin.read)


@shelf("structures")
def test_a_structure_derives_from_a_probe(name: str) -> None:
    plugin = plugins.load("structures", name)
    assert isinstance(plugin.ORDER, int)
    assert next(iter(inspect.signature(plugin.derive).parameters)) == "probe"


@pytest.mark.parametrize("name", ["engines", "sources", "structures"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(RecipeError) as raised:
        plugins.load(name, "nonesuch")
    assert all(known in raised.value.expected for known in plugins.names(name))


def test_times_are_aware() -> None:
    # The column is timestamp[ms, UTC]: an engine's answer must not carry a naive time.
    plugin = plugins.load("engines", "sglang")
    body = {
        "output_ids": [4],
        "prompt_token_ids": [1, 2, 3],
        "meta_info": {"id": RID, "finish_reason": {"type": "stop", "matched": 4}},
    }
    answer = read(plugin, 200, json.dumps(body).encode())
    assert isinstance(answer, Answer)
    assert isinstance(answer.created_at, datetime)
    assert answer.created_at.tzinfo is not None
