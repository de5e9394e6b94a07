"""Likely causes: every reason has one, and a server's report makes it concrete."""

from __future__ import annotations

from typing import Any

import pytest

from draftmill.generation.causes import CAUSES, likely_cause
from draftmill.records import OF_AN_ANSWER, Reason, ServerReport


def report(url: str = "http://a:1", *, facts: dict[str, Any] | None = None, **said: Any) -> ServerReport:
    unsaid = dict.fromkeys(
        ("version", "model", "weight_version", "context_length", "max_prompt", "reasoning_parser", "auto_truncate")
    )
    return ServerReport(**{"url": url, "name": "sglang", "facts": facts or {}, **unsaid, **said})


def test_every_reason_of_an_answer_has_a_cause_that_is_one_line() -> None:
    assert set(CAUSES) == {*OF_AN_ANSWER, Reason.REQUEST_FAILED}
    for reason in CAUSES:
        for reports in ([], [report()]):
            assert "\n" not in likely_cause(reason, reports)


@pytest.mark.parametrize(
    "reason", [Reason.REASONING_NOT_CLOSED, Reason.REASONING_NOT_OPENED, Reason.REASONING_REOPENED]
)
class TestReasoning:
    def test_names_the_server_that_reports_a_parser(self, reason: Reason) -> None:
        words = likely_cause(reason, [report(), report("http://b:1", reasoning_parser="qwen3")])
        assert "http://b:1 reports reasoning_parser 'qwen3'" in words
        assert "http://a:1" not in words

    def test_names_strict_thinking(self, reason: Reason) -> None:
        words = likely_cause(reason, [report(facts={"enable_strict_thinking": True})])
        assert "http://a:1 reports enable_strict_thinking True" in words

    def test_says_where_to_look_when_no_report_shows_either(self, reason: Reason) -> None:
        words = likely_cause(reason, [report(facts={"enable_strict_thinking": False})])
        assert "reports" not in words
        assert "/server_info" in words


@pytest.mark.parametrize(
    ("reason", "seen", "words"),
    [
        (Reason.PROMPT_ECHO, report(version="0.5.3"), "http://a:1 reports sglang 0.5.3"),
        (Reason.PROMPT_MISMATCH, report(auto_truncate=True), "http://a:1 reports allow_auto_truncate"),
        (Reason.PROMPT_MISMATCH, report(auto_truncate=False), "whether engine.urls name the servers"),
        (
            Reason.NO_END_OF_TURN,
            report(version="0.5.5", facts={"speculative_algorithm": "EAGLE"}),
            "http://a:1 reports sglang 0.5.5, speculative_algorithm 'EAGLE'",
        ),
        (Reason.CORRUPTED, report(facts={"quantization": "fp8"}), "quantization 'fp8'"),
        (Reason.ID_OUT_OF_RANGE, report(facts={"model_path": "other/model"}), "model_path 'other/model'"),
        (Reason.DEGENERATE, report(facts={"kv_cache_dtype": "auto"}), "wrong template"),
    ],
)
def test_what_a_report_shows_is_named(reason: Reason, seen: ServerReport, words: str) -> None:
    assert words in likely_cause(reason, [seen])
