"""Upload: a chunk's good rows as a shard, its bad rows as a quarantine object, named by content."""

from __future__ import annotations

from draftmill.dataset.schema import table_completions
from draftmill.dataset.shards import dataset_rows
from draftmill.dataset.verdicts import table_verdicts
from draftmill.workspace import in_thread, workspace
from tasks.receipts import Receipt, stage


@stage(
    name="upload",
    run_name="upload chunk {chunk[number]}/{chunk[total]}",
    version=1,
    key=lambda p: [p["generated"]["completions"]["sha256"], p["validated"]["verdicts"]["sha256"]],
    gives={"shard", "quarantine"},
)
async def upload(chunk: Receipt, generated: Receipt, validated: Receipt) -> Receipt:
    """`{shard: reference or None, quarantine: reference or None}`; a manifest alone makes them part of the dataset."""
    return await in_thread(_store, generated["completions"]["path"], validated["verdicts"]["path"])


def _store(completions: str, verdicts: str) -> Receipt:
    storage = workspace().storage
    good, bad = dataset_rows(
        table_completions(storage.read_table(completions)), table_verdicts(storage.read_table(verdicts))
    )
    return {
        "shard": storage.put_table("shards", good).model_dump() if good.num_rows else None,
        "quarantine": storage.put_table("quarantine", bad).model_dump() if bad.num_rows else None,
    }
