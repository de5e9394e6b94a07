"""What a fan-out and its partitions tell each other, as objects of the dataset: shares and reports.

Prefect's parameters are small, and a machine's folders are its own; the dataset is
what all have. A share is a working object like a plan's rows, named by content. A
report has a name that its parent chose, is replaced while the partition lives, and
is removed by the parent at the end.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from draftmill.dataset.gc import GRACE
from draftmill.dataset.storage import Storage
from draftmill.generation.partitions import Report, report_of

FOLDER = "partitions"


def put_share(storage: Storage, share: dict[str, Any]) -> str:
    """Its path."""
    return storage.put_table("prompts", pa.table({"share": [json.dumps(share, sort_keys=True)]})).path


def read_share(storage: Storage, path: str) -> dict[str, Any]:
    """Raises FileNotFoundError."""
    share: dict[str, Any] = json.loads(storage.read_table(path)["share"][0].as_py())
    return share


def put_report(storage: Storage, path: str, report: Report) -> None:
    storage.replace(path, json.dumps(report.to_json()).encode())


def read_report(storage: Storage, path: str) -> Report | None:
    """None where there is none yet."""
    try:
        return report_of(json.loads(storage.read(path)))
    except FileNotFoundError:
        return None


def remove_reports(storage: Storage, paths: list[str]) -> None:
    """Those, and what parents left behind that were killed long ago."""
    since = datetime.now(UTC) - GRACE
    left = [entry.path for entry in storage.entries(FOLDER) if entry.modified < since]
    for path in {*paths, *left}:
        storage.remove(path)
