"""Compact: a dataset's small objects joined into large ones, as one task."""

from __future__ import annotations

import asyncio

from prefect import task

from draftmill.dataset.compact import Compacted
from draftmill.dataset.housekeeping import compact_dataset


@task(name="compact", task_run_name="join small objects", persist_result=False)
async def compact_objects(dataset: str) -> Compacted:
    """What compacting came to; the event loop stays free meanwhile."""
    return await asyncio.to_thread(compact_dataset, dataset)
