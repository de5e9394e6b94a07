"""Compact: a dataset's small objects joined into large ones, the same rows as a new manifest."""

from __future__ import annotations

from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run
from prefect.states import Completed

from draftmill.recipe import dataset_label
from flows.parameters import Dataset
from tasks.compact import compact_objects
from tasks.ending import followed


def _run_name() -> str:
    return f"compact {dataset_label(flow_run.parameters['dataset'])}"


@flow(name="compact", flow_run_name=_run_name, persist_result=False)
@followed
async def compact(dataset: Dataset) -> State[dict[str, Any]]:
    """Join a dataset's small objects into large ones. Runs of the dataset may go on meanwhile.

    Args:
        dataset: Folder or s3://bucket/prefix.
    """
    compacted = await compact_objects(dataset)
    data = {"dataset": dataset, **compacted.to_json()}
    if compacted.manifest is None:
        message = f"nothing to compact in {compacted.objects_before:,} objects, no new manifest"
        return Completed(message=message, data=data)
    objects = f"{compacted.objects_before:,} objects -> {compacted.objects_after:,}"
    return Completed(message=f"manifest {compacted.manifest.version}, {objects}, the same rows", data=data)
