"""Several servers of one run must be the same: rows go to whichever is free. Pure.

A folder's place may differ from host to host, its name should not: another
name is taken for another model, another place is only said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from draftmill.gate.table import ALL, NOT_SAID, Check, Level, check
from draftmill.records import ServerReport

Value = Callable[[ServerReport], object]


def _path(name: str, *, whole: bool) -> Value:
    def value(report: ServerReport) -> object:
        path = report.facts.get(name)
        return path if whole or not isinstance(path, str) else PurePosixPath(path).name or path

    return value


MUST_AGREE: dict[str, Value] = {
    "model": lambda report: report.model,
    "model folder": _path("model_path", whole=False),
    "tokenizer": _path("tokenizer_path", whole=False),
    "weight version": lambda report: report.weight_version,
    "context length": lambda report: report.context_length,
}
"""Another value is another model, or cuts rows at another length."""

SHOULD_AGREE: dict[str, Value] = {
    "engine": lambda report: report.engine,
    "quantization": lambda report: report.facts.get("quantization"),
    "dtype": lambda report: report.facts.get("dtype"),
    "model's place": _path("model_path", whole=True),
    "tokenizer's place": _path("tokenizer_path", whole=True),
}
"""Another value may change numbers in the last digit, or mean nothing."""


def agreement_checks(reports: Sequence[ServerReport]) -> list[Check]:
    """How the servers differ, each URL's value named. Nothing to check with one server."""
    if len(reports) < 2:
        return []
    return [
        _agree(reports, "same model", MUST_AGREE, Level.REFUSE),
        _agree(reports, "same engine", SHOULD_AGREE, Level.WARN),
    ]


def _agree(reports: Sequence[ServerReport], name: str, values: dict[str, Value], level: Level) -> Check:
    differing = [what for what, value in values.items() if len({_shown(value(report)) for report in reports}) > 1]
    seen = "; ".join(
        f"{what}: " + ", ".join(f"{report.url} {_shown(values[what](report))}" for report in reports)
        for what in differing
    )
    return check(
        ALL,
        name,
        not differing,
        seen=seen or f"{len(reports)} servers alike",
        expected=f"the same {', '.join(values)}",
        remedy="start them with the same model and flags, or leave the others out of engine.urls",
        level=level,
    )


def _shown(value: object) -> str:
    return NOT_SAID if value is None else str(value)


def differences(before: ServerReport, now: ServerReport) -> dict[str, tuple[str, str]]:
    """What MUST_AGREE finds different in one server's two reports: what, before, now."""
    return {
        what: (_shown(value(before)), _shown(value(now)))
        for what, value in MUST_AGREE.items()
        if _shown(value(before)) != _shown(value(now))
    }
