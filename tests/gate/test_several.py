"""Servers of one run must be alike: what differs is named with each URL's value."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.gate.several import agreement_checks, differences
from draftmill.gate.table import ALL, Level

A, B = "http://a:1", "http://b:2"


def test_one_server_agrees_with_itself(recorded_report: Any) -> None:
    assert agreement_checks([recorded_report(A)]) == []


def test_two_alike_pass(recorded_report: Any) -> None:
    checks = agreement_checks([recorded_report(A), recorded_report(B)])
    assert [(check.url, check.level) for check in checks] == [(ALL, Level.OK), (ALL, Level.OK)]


@pytest.mark.parametrize(
    ("changed", "what", "value"),
    [
        ({"model": {"served_model_name": "other"}}, "model", "other"),
        ({"server": {"model_path": "models/other"}}, "model folder", "other"),
        ({"server": {"tokenizer_path": "tokenizers/other/"}}, "tokenizer", "other"),
        ({"model": {"weight_version": "w2"}}, "weight version", "w2"),
    ],
)
def test_what_must_agree_refuses(recorded_report: Any, changed: dict[str, Any], what: str, value: str) -> None:
    first, _ = agreement_checks([recorded_report(A), recorded_report(B, **changed), recorded_report("http://c")])
    assert first.level is Level.REFUSE
    assert f"{what}: {A} " in first.seen
    assert f"{B} {value}" in first.seen
    assert "http://c" in first.seen


COMMIT, OTHER = "a" * 40, "b" * 40
CACHE = "/root/.cache/huggingface/hub/models--org--smol/snapshots"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("org/smol", f"{CACHE}/{COMMIT}", True),
        (f"{CACHE}/{COMMIT}", f"/mnt/hub/models--org--smol/snapshots/{COMMIT}", True),
        ("/models/smol", f"{CACHE}/{COMMIT}", True),
        ("org/smol", f"/mnt/snapshots/{COMMIT}", True),  # which model that is, the served name must tell
        (f"{CACHE}/{COMMIT}", f"{CACHE}/{OTHER}", False),
        (f"{CACHE}/{COMMIT}", f"/mnt/snapshots/{OTHER}", False),
        ("org/other", f"{CACHE}/{COMMIT}", False),
        ("models--other", f"{CACHE}/{COMMIT}", False),
        ("/models/smol", "/models/other", False),
    ],
)
def test_one_model_at_several_places(recorded_report: Any, one: str, other: str, same: bool) -> None:
    reports = [
        recorded_report(url, server={"model_path": path, "tokenizer_path": path})
        for url, path in ((A, one), (B, other))
    ]
    must, should = agreement_checks(reports)
    assert must.level is (Level.OK if same else Level.REFUSE)
    assert should.level is Level.WARN  # the places are shown
    assert bool(differences(*reports)) is not same


def test_a_commit_that_is_said_counts_as_one_in_the_path(recorded_report: Any) -> None:
    said = recorded_report(A, server={"model_path": "org/smol", "revision": OTHER})
    cached = recorded_report(B, server={"model_path": f"{CACHE}/{COMMIT}"})
    assert agreement_checks([said, cached])[0].seen == f"model commit: {A} {OTHER}, {B} {COMMIT}"


@pytest.mark.parametrize(("compared", "level"), [(True, Level.OK), (False, Level.REFUSE)])
def test_names_of_tokenizers_count_where_ids_were_not_compared(
    recorded_report: Any, compared: bool, level: Level
) -> None:
    reports = [recorded_report(A), recorded_report(B, server={"tokenizer_path": "/tokenizers/other"})]
    must, should = agreement_checks(reports, compared=compared)
    assert (must.level, should.level) == (level, Level.WARN)
    assert "/tokenizers/other" in should.seen


def test_equal_tokenizers_do_not_make_equal_models(recorded_report: Any) -> None:
    changed = {"weight_version": "w2"}
    must, _ = agreement_checks([recorded_report(A), recorded_report(B, model=changed)], compared=True)
    assert must.level is Level.REFUSE


def test_another_context_refuses(recorded_report: Any) -> None:
    from dataclasses import replace

    first, _ = agreement_checks([recorded_report(A), replace(recorded_report(B), context_length=4096)])
    assert first.level is Level.REFUSE
    assert first.seen == f"context length: {A} 8192, {B} 4096"


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"version": "0.5.22"}, "engine"),
        ({"quantization": "fp8"}, "quantization"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"model_path": "/mnt/SmolLM2-135M-Instruct"}, "model's place"),
    ],
)
def test_what_should_agree_warns(recorded_report: Any, changed: dict[str, Any], what: str) -> None:
    must, should = agreement_checks([recorded_report(A), recorded_report(B, server=changed)])
    assert must.level is Level.OK
    assert should.level is Level.WARN
    assert should.seen.startswith(f"{what}: ")


def test_differences_of_one_server_before_and_now(recorded_report: Any) -> None:
    now = recorded_report(A, model={"weight_version": "w2"}, server={"version": "0.6.0"})
    assert differences(recorded_report(A), now) == {"weight version": ("default", "w2")}
    assert differences(now, now) == {}
