"""Report: the run's numbers as Prefect artifacts and as the flow's final state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from prefect import State, task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.states import Completed, Failed

from draftmill.errors import DraftmillError
from draftmill.reporting.drift_report import DriftReport
from draftmill.reporting.summary import Summary, exit_code
from tasks.chunks import RunOutcome
from tasks.receipts import artifact_key

log = logging.getLogger("draftmill.report")

PAGES = {"summary": "The run in short", "drift": "The new rows beside those of the last manifest"}
"""Markdown artifacts, and what they are."""


def report_plan(summary: Summary, plan: list[str]) -> State[dict[str, Any]]:
    """A plan's numbers and its lines as the flow's state: nothing was done, so nothing is published."""
    data: dict[str, Any] = {"summary": summary.to_json(), "plan": plan, "attempts": {}, "drift": []}
    data |= {"error": None, "exit_code": 0}
    return Completed(name="Planned", message=f"{summary.rows['generated']} rows to ask", data=data)


async def report(
    summary: Summary, outcome: RunOutcome | None = None, *, plan: Sequence[str] = ()
) -> State[dict[str, Any]]:
    """Artifacts, then the state the flow ends with; its data is `{summary, plan, attempts, drift, error, exit_code}`.

    `plan`: the plan's lines; `drift`: the report's, for a terminal.
    """
    numbers, drift = summary.to_json(), summary.drift
    for text in drift.warnings if drift else ():
        log.warning("%s", text)
    pages = {"summary": _markdown(numbers, summary.attempts, drift, plan)}
    if drift:
        pages["drift"] = drift.markdown(summary.dataset)
    # Its own state: what is sealed stays sealed, whether the UI has the numbers or not.
    published: State[None] = await publish(numbers, pages, return_state=True)  # type: ignore[misc]
    if published.is_failed():
        log.warning("the numbers could not be published: %s", published.message)
    error = _first_error(outcome) if outcome else None
    data = {
        "summary": numbers,
        "plan": list(plan),
        "attempts": summary.attempts,
        "drift": drift.lines() if drift else [],
        "error": str(error) if error else None,
        "exit_code": _exit_code(summary, error),
    }
    rows = numbers["rows"]
    if error or rows["pending"] or rows["failed"]:
        words = f"{rows['failed']} rows failed, {rows['pending']} were not asked; run again, only they are asked"
        return Failed(name="RowsMissing", message=f"{error}\n{words}" if error else words, data=data)
    if rows["quarantined"]:
        message = f"{rows['quarantined']} rows went into quarantine, {rows['ok']} are good"
        return Completed(name="PartialSuccess", message=message, data=data)
    return Completed(message=f"{rows['ok']} new rows, manifest {numbers['manifest']}", data=data)


@task(name="report", task_run_name="report the numbers", persist_result=False)
async def publish(numbers: dict[str, Any], pages: dict[str, str]) -> None:
    """The counts and the reasons as tables, and the pages of PAGES there are, where the UI shows them."""
    dataset = numbers["dataset"]
    counts = [{"rows": name, "number": number} for name, number in numbers["rows"].items()]
    await acreate_table_artifact(
        table=counts, key=artifact_key(dataset, "rows"), description="Where every planned row is"
    )
    reasons = [{"reason": name, "rows": number} for name, number in numbers["reasons"].items()]
    await acreate_table_artifact(
        table=reasons, key=artifact_key(dataset, "reasons"), description="Why rows are not in the dataset"
    )
    for name, text in pages.items():
        await acreate_markdown_artifact(markdown=text, key=artifact_key(dataset, name), description=PAGES[name])


def _markdown(numbers: dict[str, Any], attempts: dict[str, int], drift: DriftReport | None, plan: Sequence[str]) -> str:
    rows, tokens = numbers["rows"], numbers["tokens"]
    lines = [
        f"# {numbers['dataset']}, manifest {numbers['manifest']}",
        f"- {rows['ok']} new good rows, {rows['quarantined']} quarantined, {rows['kept']} kept",
        f"- {rows['failed']} failed, {rows['pending']} pending, {rows['rejected']} rejected",
        f"- {numbers['requests']} requests ({numbers['retries']} repeated), {tokens['output']} output tokens",
    ]
    if attempts:
        counts = ", ".join(f"attempt {attempt} {number}" for attempt, number in attempts.items())
        lines.append(f"- good rows by attempt (asked again, or on): {counts}")
    if drift:
        lines.append(f"- drift: {len(drift.warnings)} warnings, see `{artifact_key(numbers['dataset'], 'drift')}`")
    if plan:
        lines += ["", "## What was planned", "```text", *plan, "```"]
    return "\n".join(lines)


def _first_error(outcome: RunOutcome) -> BaseException | None:
    return outcome.stopped or next((chunk.error for chunk in outcome.chunks if chunk.error), None)


def _exit_code(summary: Summary, error: BaseException | None) -> int:
    if error is None:
        return exit_code(summary)
    return error.exit_code if isinstance(error, DraftmillError) else 1
