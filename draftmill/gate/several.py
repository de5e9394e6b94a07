"""Several servers of one run must be the same: rows go to whichever is free. Pure.

A folder's place may differ from host to host, its name should not: another name
is taken for another model, another place is only said. The hub's name and its
cache (`models--org--name/snapshots/COMMIT`) are the same model; what a path does
not tell is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from draftmill.gate.table import ALL, NOT_SAID, Check, Level, check
from draftmill.records import ServerReport

Value = Callable[[ServerReport], object]

_CACHED = re.compile(r"models--(?:.+--)?(.+)")
"""The folder of a model in the hub's cache; its last part is the model's name."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


def _place(name: str) -> Value:
    return lambda report: report.facts.get(name)


def _named(name: str) -> Value:
    """A folder's name, or the hub's; None where the path has only a commit."""

    def value(report: ServerReport) -> object:
        path = report.facts.get(name)
        if not isinstance(path, str):
            return path
        parts = PurePosixPath(path).parts
        cached = next((found[1] for part in parts if (found := _CACHED.fullmatch(part))), None)
        last = parts[-1] if parts else path
        return cached or (None if _COMMIT.fullmatch(last) else last)

    return value


def _commit(report: ServerReport) -> object:
    """The commit of the weights, said or in the path; None where neither has one."""
    path, revision = report.facts.get("model_path"), report.facts.get("revision")
    said = (revision, PurePosixPath(path).name if isinstance(path, str) else None)
    return next((each for each in said if isinstance(each, str) and _COMMIT.fullmatch(each)), None)


MUST_AGREE: dict[str, Value] = {
    "model": lambda report: report.model,
    "model folder": _named("model_path"),
    "model commit": _commit,
    "tokenizer": _named("tokenizer_path"),
    "weight version": lambda report: report.weight_version,
    "context length": lambda report: report.context_length,
}
"""Another value is another model, or cuts rows at another length."""

SHOULD_AGREE: dict[str, Value] = {
    "engine": lambda report: report.engine,
    "quantization": lambda report: report.facts.get("quantization"),
    "dtype": lambda report: report.facts.get("dtype"),
    "model's place": _place("model_path"),
    "tokenizer's place": _place("tokenizer_path"),
}
"""Another value may change numbers in the last digit, or mean nothing."""

BY_PATH = frozenset({"model folder", "model commit", "tokenizer"})
"""Only some paths tell these: silence is no difference."""


def agreement_checks(reports: Sequence[ServerReport], *, compared: bool = False) -> list[Check]:
    """How the servers differ, each URL's value named. Nothing to check with one server.

    `compared`: all their tokenizers gave our ids, whatever their folders are called.
    """
    if len(reports) < 2:
        return []
    must = {what: value for what, value in MUST_AGREE.items() if not (compared and what == "tokenizer")}
    return [
        _agree(reports, "same model", must, Level.REFUSE),
        _agree(reports, "same engine", SHOULD_AGREE, Level.WARN),
    ]


def _agree(reports: Sequence[ServerReport], name: str, values: dict[str, Value], level: Level) -> Check:
    differing = [what for what, value in values.items() if _differ(what, [value(report) for report in reports])]
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


def _differ(what: str, values: Sequence[object]) -> bool:
    return len({_shown(value) for value in values if value is not None or what not in BY_PATH}) > 1


def _shown(value: object) -> str:
    return NOT_SAID if value is None else str(value)


def differences(before: ServerReport, now: ServerReport) -> dict[str, tuple[str, str]]:
    """What MUST_AGREE finds different in one server's two reports: what, before, now."""
    return {
        what: (_shown(value(before)), _shown(value(now)))
        for what, value in MUST_AGREE.items()
        if _differ(what, [value(before), value(now)])
    }
