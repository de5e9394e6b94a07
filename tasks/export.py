"""Export: datasets as a trainer's files, as one task."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.artifacts import acreate_markdown_artifact

from draftmill.exporting.export import Exported, Order
from draftmill.exporting.export import export as export_rows
from draftmill.exporting.selection import Wish
from draftmill.redaction import without_secrets
from draftmill.reporting.export_lines import export_lines
from draftmill.reporting.progress_page import cell
from tasks.receipts import artifact_key


@task(name="export", task_run_name="write and read back", persist_result=False)
async def write_export(
    datasets: list[str], out: str, to: str, wish: Wish, order: Order, weights: list[float]
) -> Exported:
    """What the export came to; the event loop stays free meanwhile."""
    return await asyncio.to_thread(export_rows, datasets, out, to=to, wish=wish, order=order, weights=weights)


async def publish_export(done: Exported) -> None:
    """The numbers as a page of the run."""
    lines = "\n".join(f"- {cell(line)}" for line in export_lines(done))
    await acreate_markdown_artifact(
        markdown=without_secrets(f"# {cell(done.out)}\n\n{lines}"),
        key=artifact_key(done.out, "export"),
        description="What was exported",
    )
