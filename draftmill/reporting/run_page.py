"""A run in short, for the page that Prefect's UI shows of it: what came, why rows are missing, what to do next.

Pure text: the numbers come from the run's summary, examples from its receipts. The
same words are the state's message, whose first line names the likely cause, since a
notification shows no more.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftmill.dataset.card import CARD
from draftmill.dataset.manifest import manifest_path
from draftmill.records import OF_AN_ANSWER, Reason
from draftmill.reporting.progress_page import cell, clock, short

ID_SHOWN = 80
"""Characters of an example's prompt id: some sources have whole prompts there."""

KEY_SHOWN = 12
"""Characters of a row key: enough for `draftmill show` to find it."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What is known of the rows that are not in the dataset.

    `examples`: by reason one row, `{prompt_id, detail, row_key}` (row_key None for a prompt that was never sent).
    `words`: of failed rows, how many had which last words. `error`: the headline of what ended the run early. `left`:
    pending rows that a pilot left to the run behind it.
    """

    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    words: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    left: int = 0


def reasons_table(numbers: Mapping[str, Any], missing: Missing) -> list[dict[str, Any]]:
    """A line a reason, the commonest first: why, how many rows, what became of them, one of them."""
    lines = []
    for reason, number in sorted(numbers["reasons"].items(), key=lambda item: -item[1]):
        example = missing.examples.get(reason, {})
        lines.append(
            {
                "reason": reason,
                "rows": number,
                "these rows are": fate(reason),
                "one of them": short(str(example.get("prompt_id", "")), ID_SHOWN),
                "row": str(example.get("row_key") or "")[:KEY_SHOWN],
                "detail": short(str(example.get("detail", ""))),
            }
        )
    return lines


def fate(reason: str) -> str:
    """What becomes of rows with this reason."""
    if reason == Reason.REQUEST_FAILED:
        return "failed: asked again"
    return "quarantined" if reason in OF_AN_ANSWER else "rejected: never sent"


def missing_headline(numbers: Mapping[str, Any], missing: Missing) -> str:
    """Why rows are missing, on one line: what stopped the run, else what most failed requests were told."""
    if missing.error:
        return missing.error
    if missing.words:
        total, (words, number) = sum(missing.words.values()), max(missing.words.items(), key=lambda item: item[1])
        return f"{number:,} of {total:,} failed rows: {short(words)}"
    rows = numbers["rows"]
    return f"{rows['failed']:,} rows failed, {rows['pending'] - missing.left:,} were not asked"


def summary_page(
    numbers: Mapping[str, Any],
    *,
    headline: str,
    missing: Missing,
    attempts: Mapping[str, int],
    plan: Sequence[str],
    notes: Sequence[str] = (),
) -> str:
    """The page. `headline`: how the run ended; `notes`: further lines of markdown; `plan`: its lines."""
    version = numbers["manifest"]
    sealed = f"manifest {version}" if numbers["sealed"] else f"manifest {version}, unchanged"
    parts = [f"# {cell(numbers['dataset'])}: {sealed if version else 'nothing sealed'}", f"**{cell(headline)}**"]
    parts.append("\n".join(f"- {line}" for line in (*_numbers(numbers, attempts), *notes)))
    parts += ["## What to do next", "\n".join(f"- {line}" for line in next_steps(numbers, missing))]
    parts += ["## Where to look", "\n".join(f"- {line}" for line in _places(numbers))]
    if plan:
        parts += ["## What was planned", "\n".join(["```text", *plan, "```"])]
    return "\n\n".join(parts)


def next_steps(numbers: Mapping[str, Any], missing: Missing) -> list[str]:
    """What the numbers ask of a person, in markdown."""
    return [*_steps(numbers, missing)] or ["Nothing: every planned row is in the dataset."]


def _steps(numbers: Mapping[str, Any], missing: Missing) -> Iterator[str]:
    rows, dataset = numbers["rows"], shlex.quote(numbers["dataset"])
    if missing.error:
        yield f"The run ended early: {cell(missing.error)}. Its state says what to do; what is finished is kept."
    if rows["failed"]:
        commonest = sorted(missing.words.items(), key=lambda item: -item[1])[:3]
        words = "; ".join(f"{cell(short(text))} ({number:,})" for text, number in commonest)
        yield (
            f"{rows['failed']:,} rows failed{f', most often: {words}' if words else ''}. Look at the server's log, "
            "then Retry this run, or wait for the next one: only these rows are asked."
        )
    if missing.left:
        yield f"{missing.left:,} rows are left to a run, which asks for no row of the pilot again."
    if unasked := rows["pending"] - missing.left:
        yield f"{unasked:,} rows were not asked. Retry this run, or wait for the next one: only they are asked."
    if rows["quarantined"]:
        row = next((str(e["row_key"])[:KEY_SHOWN] for e in missing.examples.values() if e.get("row_key")), "ROW")
        yield (
            f"{rows['quarantined']:,} rows went into quarantine: no run asks for them again by itself. "
            f"`draftmill show {dataset} {row}` shows one; docs/reason-codes.md says what is likely behind each reason. "
            f"After a change of rules, `draftmill rerun {dataset}` judges them again without a request; `--generate "
            "--reason CODE` asks again, which biases the dataset towards answers the rule likes."
        )
    if rows["rejected"]:
        yield (
            f"{rows['rejected']:,} rows cannot be sent: `draftmill status {dataset} --rejected` lists them with their "
            "place in the source."
        )


def _numbers(numbers: Mapping[str, Any], attempts: Mapping[str, int]) -> Iterator[str]:
    rows, tokens, chunks = numbers["rows"], numbers["tokens"], numbers["chunks"]
    yield f"{rows['ok']:,} new good rows, {rows['quarantined']:,} quarantined, {rows['kept']:,} kept"
    yield f"{rows['failed']:,} failed, {rows['pending']:,} pending, {rows['rejected']:,} rejected"
    yield (
        f"{numbers['requests']:,} requests ({numbers['retries']:,} repeated), {tokens['output']:,} output tokens in "
        f"{clock(numbers['seconds'])}"
    )
    if chunks["total"]:
        how = ", ".join(f"{chunks[name]:,} {name}" for name in ("run", "cached", "failed"))
        yield f"chunks: {chunks['total']:,} ({how})"
    if attempts:
        counts = ", ".join(f"attempt {attempt} {number:,}" for attempt, number in attempts.items())
        yield f"good rows by attempt (asked again, or on): {counts}"


def _places(numbers: Mapping[str, Any]) -> Iterator[str]:
    dataset, version = numbers["dataset"].rstrip("/"), numbers["manifest"]
    yield f"dataset: `{dataset}`"
    if not version:
        return
    yield f"manifest: `{dataset}/{manifest_path(version)}`"
    yield f"card: `{dataset}/{CARD}`"
    quoted = shlex.quote(dataset)
    yield f"`draftmill status {quoted}`, `draftmill show {quoted} 0`"
    if numbers["sealed"] and version > 1:
        yield f"`draftmill diff {quoted} {version - 1} {version}`"


def rows_table(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where every planned row is, for a table."""
    return [{"rows": name, "number": number} for name, number in numbers["rows"].items()]
