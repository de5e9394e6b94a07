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
