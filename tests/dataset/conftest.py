"""Small rows, completions and stored tables to test a dataset with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from draftmill.arrays import ids_array
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.dataset.storage import Storage, open_storage
from draftmill.records import Answer, Completion, Row

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def hex_key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def build_completion(name: str = "a", attempt: int = 0, **changes: Any) -> Completion:
    row = Row(
        row_key=hex_key(name),
        attempt=attempt,
        prompt_key=hex_key(f"prompt {name}"),
        prompt_id=name,
        variant="default",
        sample=0,
        prompt_ids=ids_array("prompt_ids", [1, 2, 3]),
        max_new_tokens=64,
        messages=None,
        source="prompts.jsonl",
    )
    answer = {
        "output_ids": ids_array("output_ids", [10, 11, 2]),
        "echo_ids": None,
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "finish_type": "stop",
        "finish_length": None,
        "matched": 2,
        "engine": "sglang 0.5.23",
        "weight_version": None,
        "created_at": WHEN,
    }
    return Completion(row, Answer(**{**answer, **changes}))


def build_rows(*rows: dict[str, Any], reason: str | None = None) -> pa.Table:
    """A SHARD table, or with `reason` a QUARANTINE table, of rows that hold together.

    A row: {key, slot=key, attempt=0, finish="stop", budget=64}.
    """
    columns: dict[str, list[Any]] = {name: [] for name in SHARD.names}
    for number, row in enumerate(rows):
        finish = row.get("finish", "stop")
        stop_id = 2 if finish == "stop" else None
        ids = np.array([1, 163606, 40 + number, 163607, 41, 2], np.int32)
        span = {"start": 2, "end": 6, "reasoning_end": 3, "finish_reason": finish, "stop_id": stop_id}
        values = {
            "row_key": hex_key(row["key"]),
            "prompt_key": hex_key(f"prompt {row.get('slot', row['key'])}"),
            "prompt_id": row["key"],
            "variant": "default",
            "sample": 0,
            "attempt": row.get("attempt", 0),
            "input_ids": ids,
            "prompt_len": 2,
            "spans": [span],
            "reasoning_end": 3,
            "max_new_tokens": row.get("budget", 64),
            "finish_reason": finish,
            "stop_id": stop_id,
            "engine": "sglang 0.5.23",
            "weight_version": None,
            "messages": row.get("messages"),
            "source": "prompts.jsonl",
            "created_at": WHEN,
        }
        for name, value in values.items():
            columns[name].append(value)
    if reason is None:
        return pa.table(columns, schema=SHARD)
    extra = {"reason": [reason] * len(rows), "detail": [""] * len(rows)}
    return pa.table({**columns, **extra}, schema=QUARANTINE)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "dataset"))


@pytest.fixture(scope="session")
def key_of() -> Callable[[str], str]:
    return hex_key


@pytest.fixture(scope="session")
def completion() -> Callable[..., Completion]:
    return build_completion


@pytest.fixture(scope="session")
def stored_rows() -> Callable[..., pa.Table]:
    return build_rows
