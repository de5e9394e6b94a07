"""Report: the run's numbers as Prefect artifacts and as the flow's final state."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import State, task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.states import Completed, Failed

from draftmill.errors import DraftmillError
from draftmill.redaction import without_secrets
from draftmill.reporting.page.make import write_report
from draftmill.reporting.run_page import Missing, missing_headline, reasons_table, rows_table, summary_page
from draftmill.reporting.summary import Summary, exit_code
from draftmill.workspace import in_thread, workspace
from tasks.chunks import RunOutcome
from tasks.follow import came_to
from tasks.receipts import Receipt, artifact_key

log = logging.getLogger("draftmill.report")

PAGES = {
    "summary": "The run in short",
    "drift": "The new rows beside those of the last manifest",
    "pilot": "What the whole takes, by a sample of it",
}
"""Markdown artifacts, and what they are."""

TABLES = {"rows": "Where every planned row is", "reasons": "Why rows are not in the dataset, and one of each"}
"""Table artifacts, and what they are."""


def report_plan(summary: Summary, plan: list[str]) -> State[dict[str, Any]]:
    """A plan's numbers and its lines as the flow's state: nothing was done, so nothing is published."""
    data: dict[str, Any] = {"summary": summary.to_json(), "plan": plan, "attempts": {}, "drift": [], "page": None}
    data |= {"error": None, "exit_code": 0}
    return Completed(name="Planned", message=f"{summary.rows['generated']} rows to ask", data=data)


async def report(
    summary: Summary, outcome: RunOutcome | None = None, *, plan: Receipt | None = None
) -> State[dict[str, Any]]:
    """Artifacts, then the state the flow ends with.

    Its data is `{summary, plan, attempts, drift, page, error, exit_code}`; `plan`: the plan's lines; `drift`: the
    report's, for a terminal; `page`: where the report page of a new manifest lies.
    """
    came_to(summary.manifest, sealed=summary.sealed)
    numbers, drift = summary.to_json(), summary.drift
    lines: list[str] = plan["lines"] if plan else []
    for text in drift.warnings if drift else ():
        log.warning("%s", text)
    error = _first_error(outcome) if outcome else None
    missing = replace(await in_thread(_missing, outcome, plan, error), left=summary.rows["pending"] - summary.unasked)
    state = _state(summary, numbers, missing, error)
    notes = []
    if drift:
        notes.append(f"drift: {len(drift.warnings)} warnings, see `{artifact_key(summary.dataset, 'drift')}`")
    page = await _page(summary) if summary.sealed else None
    if page:
        notes.append(f"report: [{page}]({_link(page)}), one file to open in a browser")
    pages = {
        "summary": summary_page(
            numbers,
            headline=f"{state.name}: {str(state.message).splitlines()[0]}",
            missing=missing,
            attempts=summary.attempts,
            plan=lines,
            notes=notes,
        )
    }
    if drift:
        pages["drift"] = drift.markdown(summary.dataset)
    tables = {"rows": rows_table(numbers), "reasons": reasons_table(numbers, missing)}
    # Its own state: what is sealed stays sealed, whether the UI has the numbers or not.
    published: State[None] = await publish(summary.dataset, tables, pages, return_state=True)  # type: ignore[misc]
    if published.is_failed():
        log.warning("the numbers could not be published: %s", published.message)
    state.data = {
        "summary": numbers,
        "plan": lines,
        "attempts": summary.attempts,
        "drift": drift.lines() if drift else [],
        "page": page,
        "error": str(error) if error else None,
        "exit_code": _exit_code(summary, error),
    }
    return state


def _state(
    summary: Summary, numbers: dict[str, Any], missing: Missing, error: BaseException | None
) -> State[dict[str, Any]]:
    """The state of a run that came to its end; a failed one's first line is its likely cause."""
    rows = numbers["rows"]
    if error or summary.unasked or rows["failed"]:
        words = f"{rows['failed']} rows failed, {summary.unasked} were not asked; run again, only they are asked"
        details = error.details if isinstance(error, DraftmillError) else ""
        parts = [missing_headline(numbers, missing), details, words]
        return Failed(name="RowsMissing", message=without_secrets("\n\n".join(filter(None, parts))))
    if rows["quarantined"] or summary.rejudged_bad:
        number = rows["quarantined"] + summary.rejudged_bad
        reasons = ", ".join(f"{reason} {count}" for reason, count in Counter(numbers["reasons"]).most_common(3))
        why = f" ({reasons})" if reasons else ""
        return Completed(
            name="PartialSuccess", message=f"{number} rows went into quarantine{why}, {rows['ok']} new ones are good"
        )
    return Completed(message=f"{rows['ok']} new rows, manifest {numbers['manifest']}")


async def _page(summary: Summary) -> str | None:
    """Where the new manifest's report page lies; None where it cannot be made, which costs nothing but the page."""
    made: State[str] = await make_page(summary.manifest, return_state=True)  # type: ignore[misc]
    if made.is_completed():
        return str(await made.aresult())
    log.warning(
        "no report page: %s; the dataset is sealed, `draftmill report %s` tries again", made.message, summary.dataset
    )
    return None


@task(name="page", task_run_name="make the report page", persist_result=False)
async def make_page(version: int) -> str:
    """The page of a manifest, beside its rows; its path or URL."""
    storage = workspace().storage
    return (await in_thread(write_report, storage, version)).place


def _link(page: str) -> str:
    return page if "://" in page else Path(page).as_uri()


@task(name="report", task_run_name="report the numbers", persist_result=False)
async def publish(dataset: str, tables: dict[str, list[dict[str, Any]]], pages: dict[str, str]) -> None:
    """The tables of TABLES, and the pages of PAGES there are, where the UI shows them."""
    for name, lines in tables.items():
        table = [
            {key: without_secrets(value) if isinstance(value, str) else value for key, value in line.items()}
            for line in lines
        ]
        await acreate_table_artifact(table=table, key=artifact_key(dataset, name), description=TABLES[name])
    for name, text in pages.items():
        await acreate_markdown_artifact(
            markdown=without_secrets(text), key=artifact_key(dataset, name), description=PAGES[name]
        )


def _missing(outcome: RunOutcome | None, plan: Receipt | None, error: BaseException | None) -> Missing:
    """What is known of the rows that are not in the dataset. Blocks."""
    examples: dict[str, dict[str, Any]] = _rejected(plan["rejected"]) if plan and plan["rejected"] else {}
    words: Counter[str] = Counter()
    for chunk in outcome.chunks if outcome else ():
        if chunk.generated:
            words.update(chunk.generated["failed_words"])
            for row in chunk.generated["failures"][:1]:
                examples.setdefault("request_failed", row)
        for reason, row in chunk.validated["examples"].items() if chunk.validated else ():
            examples.setdefault(reason, row)
    return Missing(examples, words, _headline(error) if error else None)


def _rejected(ref: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By reason the first prompt that cannot be sent."""
    table = workspace().storage.read_table(ref["path"], ["prompt_id", "reason", "detail"])
    reasons = table["reason"]
    first = {reason: reasons.index(reason).as_py() for reason in reasons.unique().to_pylist()}
    return {reason: table.slice(index, 1).to_pylist()[0] for reason, index in first.items()}


def _headline(error: BaseException) -> str:
    return without_secrets(error.headline if isinstance(error, DraftmillError) else f"{type(error).__name__}: {error}")


def _first_error(outcome: RunOutcome) -> BaseException | None:
    return outcome.stopped or next((chunk.error for chunk in outcome.chunks if chunk.error), None)


def _exit_code(summary: Summary, error: BaseException | None) -> int:
    if error is None:
        return exit_code(summary)
    return error.exit_code if isinstance(error, DraftmillError) else 1
