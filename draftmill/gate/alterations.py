"""What makes a server give other ids than its model would, or take other ids than were sent. Pure.

Each is a flag that the server's pages show. What an engine does not show (vLLM
shows no flags at all) is left to the canary and to the judge of every row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftmill.gate.table import Check, Level, check, shows_flags
from draftmill.records import ServerReport

LOSSLESS = 1.0
"""An acceptance threshold of speculative decoding at which the distribution is the model's own."""

THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")

WATERMARKS = ("watermark_default_enabled", "watermark_enforce_all")
"""Flags under which an answer is watermarked although its request does not ask for it: other ids are drawn."""


def alteration_checks(report: ServerReport, *, sent: frozenset[str]) -> list[Check]:
    """`sent`: the sampling parameters that every request holds, which no server default can fill."""
    facts = report.facts
    unset = "none" if shows_flags(report) else None
    return [
        _kind(report),
        check(
            report.url,
            "reasoning parser",
            report.reasoning_parser is None,
            seen=report.reasoning_parser or unset,
            expected="none",
            remedy="start the server without --reasoning-parser: some versions strip the think markers from the ids",
        ),
        check(
            report.url,
            "tool parser",
            facts.get("tool_call_parser") is None,
            seen=facts.get("tool_call_parser") or unset,
            expected="none",
            remedy="start the server without --tool-call-parser: it is for chat clients",
            level=Level.WARN,
        ),
        check(
            report.url,
            "auto truncate",
            not report.auto_truncate,
            seen=report.auto_truncate,
            expected="False",
            remedy="start the server without --allow-auto-truncate: it cuts prompts in silence",
        ),
        _speculation(report, unset),
        check(
            report.url,
            "strict thinking",
            not facts.get("enable_strict_thinking"),
            seen=facts.get("enable_strict_thinking"),
            expected="False",
            remedy="start the server without --enable-strict-thinking: it forbids ids while the model reasons",
        ),
        check(
            report.url,
            "watermark",
            not any(facts.get(name) for name in WATERMARKS),
            seen=next((f"{name}: True" for name in WATERMARKS if facts.get(name)), unset),
            expected="none, unless a request asks for it",
            remedy="start the server with a --watermark-config that is neither default_enabled nor enforce_all",
        ),
        check(
            report.url,
            "logit processors",
            not facts.get("enable_custom_logit_processor"),
            seen=facts.get("enable_custom_logit_processor"),
            expected="False",
            remedy="start the server without --enable-custom-logit-processor; draftmill sends none, others may",
            level=Level.WARN,
        ),
        _defaults(report, unset, sent=sent),
    ]


def _kind(report: ServerReport) -> Check:
    notes = report.facts.get("notes")
    said = "; ".join(map(str, notes)) if isinstance(notes, list | tuple) else notes
    return check(
        report.url,
        "engine",
        not notes,
        seen=said or report.engine,
        expected="an inference server",
        remedy="good for trying things out; its answers are no training data",
        level=Level.WARN,
    )


def _speculation(report: ServerReport, unset: str | None) -> Check:
    """Acceptance below 1 takes draft tokens that the model would not have sampled so often."""
    algorithm = report.facts.get("speculative_algorithm")
    lossy = {name: report.facts[name] for name in THRESHOLDS if _is_lossy(report.facts.get(name))}
    words = ", ".join(f"{name.removeprefix('speculative_')} {value}" for name, value in lossy.items())
    return check(
        report.url,
        "speculative decoding",
        algorithm is None or not lossy,
        seen=f"{algorithm}, {words}" if algorithm is not None and lossy else algorithm or unset,
        expected="none, or with acceptance thresholds of 1",
        remedy="start the server without --speculative-accept-threshold-...: below 1 the answers are not the model's",
    )


def _is_lossy(threshold: Any) -> bool:
    return isinstance(threshold, int | float) and threshold < LOSSLESS


def _defaults(report: ServerReport, unset: str | None, *, sent: frozenset[str]) -> Check:
    preferred = report.facts.get("preferred_sampling_params")
    unsent = sorted(set(preferred) - sent) if isinstance(preferred, Mapping) else []
    return check(
        report.url,
        "preferred sampling",
        not unsent,
        seen=", ".join(f"{name}={preferred[name]!r}" for name in unsent) if unsent and preferred else unset,
        expected="nothing that requests do not say themselves",
        remedy="start the server without these in --preferred-sampling-params: they would apply to every row",
        level=Level.WARN,
    )
