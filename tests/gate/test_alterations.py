"""Flags that change ids: each refuses or warns once on recorded pages, and none on the page as recorded."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.engines import vllm
from draftmill.gate.alterations import alteration_checks
from draftmill.gate.table import NOT_SAID, Check, Level

SENT = frozenset({"temperature", "top_p", "max_new_tokens", "stop_token_ids"})


def named(report: Any) -> dict[str, Check]:
    return {each.name: each for each in alteration_checks(report, sent=SENT)}


def test_the_recorded_server_changes_nothing(recorded_report: Any) -> None:
    checks = named(recorded_report())
    assert {check.level for check in checks.values()} == {Level.OK}
    assert NOT_SAID not in {check.seen for check in checks.values()} - {checks["logit processors"].seen}


@pytest.mark.parametrize(
    ("name", "server", "level", "remedy"),
    [
        ("reasoning parser", {"reasoning_parser": "kimi_k2"}, Level.REFUSE, "--reasoning-parser"),
        ("tool parser", {"tool_call_parser": "qwen25"}, Level.WARN, "--tool-call-parser"),
        ("auto truncate", {"allow_auto_truncate": True}, Level.REFUSE, "--allow-auto-truncate"),
        ("strict thinking", {"enable_strict_thinking": True}, Level.REFUSE, "--enable-strict-thinking"),
        ("watermark", {"watermark_default_enabled": True}, Level.REFUSE, "--watermark-config"),
        ("watermark", {"watermark_enforce_all": True}, Level.REFUSE, "--watermark-config"),
        ("logit processors", {"enable_custom_logit_processor": True}, Level.WARN, "custom-logit-processor"),
        ("engine", {"notes": ["a fake", "no model"]}, Level.WARN, "no training data"),
        (
            "speculative decoding",
            {"speculative_algorithm": "EAGLE3", "speculative_accept_threshold_single": 0.5},
            Level.REFUSE,
            "accept-threshold",
        ),
        (
            "speculative decoding",
            {"speculative_algorithm": "EAGLE3", "speculative_accept_threshold_acc": 0.9},
            Level.REFUSE,
            "accept-threshold",
        ),
        (
            "preferred sampling",
            {"preferred_sampling_params": {"temperature": 0, "regex": "a+"}},
            Level.WARN,
            "--preferred-sampling-params",
        ),
    ],
)
def test_a_flag(recorded_report: Any, name: str, server: dict[str, Any], level: Level, remedy: str) -> None:
    checks = named(recorded_report(server=server))
    assert [each.name for each in checks.values() if each.level is not Level.OK] == [name]
    assert checks[name].level is level
    assert remedy in checks[name].remedy


@pytest.mark.parametrize(
    "server",
    [
        {"speculative_algorithm": "EAGLE3"},
        {"enable_watermark": True, "watermark_default_enabled": False},  # only for requests that ask for it
        {"speculative_algorithm": "EAGLE3", "speculative_accept_threshold_single": 1.0},
        {"speculative_accept_threshold_single": 0.5},  # of no effect without an algorithm
        {"preferred_sampling_params": {"temperature": 0, "stop_token_ids": [339]}},  # every request says its own
    ],
)
def test_what_does_not_change_the_answers_passes(recorded_report: Any, server: dict[str, Any]) -> None:
    assert {check.level for check in named(recorded_report(server=server)).values()} == {Level.OK}


def test_the_recorded_reasoning_parser_page_refuses(recorded_report: Any) -> None:
    report = recorded_report(model={"reasoning_parser": "qwen3"})  # where only /model_info says it
    assert named(report)["reasoning parser"].level is Level.REFUSE


def test_a_server_that_shows_no_flags_is_not_said_to_have_none() -> None:
    models = {"data": [{"id": "smol", "max_model_len": 8192, "root": "models/smol"}]}
    checks = named(vllm.combined("http://h", {"version": "0.32.0"}, models))
    assert {check.level for check in checks.values()} == {Level.OK}
    silent = {"reasoning parser", "tool parser", "auto truncate", "speculative decoding", "preferred sampling"}
    assert {checks[name].seen for name in silent} == {NOT_SAID}
