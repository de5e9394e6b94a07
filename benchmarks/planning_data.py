"""A dataset as many nights leave it, without the nights: manifest, parts, and what tonight's source renders to.

Rows are as small as rows can be (8 ids in, 8 out), since planning reads keys and no
ids. What becomes of a prompt is decided by its number, so the kinds are spread evenly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.dataset import completions
from draftmill.dataset.plan import rows_of_a_chunk
from draftmill.dataset.schema import COMPLETION, QUARANTINE, ROW, SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import ObjectRef, Storage

SLICE_ROWS = 16_000
"""Rows of a rendered slice: between those of a small and of a large source."""

PART_ROWS = 12_000
"""Rows of a part: what a fast server answers between two uploads."""

IDS = 8
"""Ids of a prompt and of an answer."""

BUDGET, SMALLER = 64, 32

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """Per cent of the prompts that are in the dataset as they are now, and in other ways; the rest is new."""

    says: str
    kept: int
    held: int
    cut: int
    changed: int
    answered: int


CASES = {
    "first": Case("all new", kept=0, held=0, cut=0, changed=0, answered=0),
    "usual": Case("nothing new", kept=97, held=3, cut=0, changed=0, answered=0),
    "new": Case("10 % new", kept=80, held=3, cut=3, changed=2, answered=2),
}

GONE = 1
"""Per cent of the prompts that were there once."""


def build(storage: Storage, case: Case, rows: int) -> list[str]:
    """The dataset; the paths of tonight's rendered slices."""
    kinds = _kinds(case, rows)
    gone = np.arange(rows, rows + rows * GONE // 100)
    good = np.concatenate([kinds["kept"], kinds["cut"], kinds["changed"], gone])
    cut = np.isin(good, kinds["cut"])
    old = np.isin(good, kinds["changed"])
    size = rows_of_a_chunk(rows, "auto")
    shards = [_shard(storage, good[at], cut[at], old[at]) for at in _cut(len(good), size)]
    bad = [_quarantine(storage, kinds["held"][at]) for at in _cut(len(kinds["held"]), size)]
    for at in _cut(len(good), PART_ROWS):
        _part(storage, good[at], cut[at], old[at])
    for numbers in (kinds["held"], kinds["answered"]):
        for at in _cut(len(numbers), PART_ROWS):
            _part(storage, numbers[at])
    seal(storage, Change(good=shards, bad=bad))
    numbers = np.arange(rows)
    return [storage.put_table("prompts", _rows(numbers[at])).path for at in _cut(rows, SLICE_ROWS)]


def answer(storage: Storage, plan: Mapping[str, Any]) -> list[ObjectRef]:
    """Each chunk of a plan as a shard of good rows."""
    return [storage.put_table("shards", _sealed(storage.read_table(chunk["rows"]["path"]))) for chunk in plan["chunks"]]


def _kinds(case: Case, rows: int) -> dict[str, Numbers]:
    """The numbers of the prompts of each kind."""
    # A prime step: neighbours are of different kinds.
    place, numbers = np.arange(rows) * 37 % 100, np.arange(rows)
    names = ("kept", "held", "cut", "changed", "answered")
    ends = np.cumsum([getattr(case, name) for name in names])
    kind = np.searchsorted(ends, place, side="right")
    return {name: numbers[kind == number] for number, name in enumerate(names)}


def _cut(rows: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, rows, size))


def _hashes(word: str, numbers: Numbers) -> pa.Array:
    return pa.array([hashlib.sha256(f"{word} {number}".encode()).hexdigest() for number in numbers.tolist()])


def _ids(rows: int, ids: int, lists: Callable[..., pa.Array] = pa.ListArray.from_arrays) -> pa.Array:
    offsets = pa.array(np.arange(rows + 1) * ids, pa.int64() if lists is pa.LargeListArray.from_arrays else pa.int32())
    return lists(offsets, pa.array(np.arange(rows * ids, dtype=np.int32)))


def _table(schema: pa.Schema, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """`columns`: arrays, or one value for all rows; null where it has none."""
    given = {name: columns.get(name) for name in schema.names}
    arrays = [
        value if isinstance(value, pa.Array | pa.ChunkedArray) else pa.repeat(pa.scalar(value, field.type), rows)
        for field, value in zip(schema, given.values(), strict=True)
    ]
    return pa.table(arrays, schema=schema)


def _rows(numbers: Numbers, old: npt.NDArray[np.bool_] | None = None, budget: Any = BUDGET) -> pa.Table:
    rows = len(numbers)
    keys = _hashes("row", numbers)
    if old is not None and old.any():
        keys = pa.compute.if_else(pa.array(old), _hashes("old row", numbers), keys)
    columns = {
        "row_key": keys,
        "attempt": 0,
        "prompt_key": _hashes("prompt", numbers),
        "prompt_id": pa.array(numbers).cast(pa.string()),
        "variant": "default",
        "sample": 0,
        "prompt_ids": _ids(rows, IDS, pa.LargeListArray.from_arrays),
        "max_new_tokens": budget,
        "source": "prompts.jsonl",
        "line": pa.array(numbers + 1),
        "earlier": [],
        "spans": [],
    }
    return _table(ROW, rows, columns)


def _sealed(rows: pa.Table, finish: Any = "stop") -> pa.Table:
    """ROW as SHARD: answered."""
    num = rows.num_rows
    span = {"start": IDS, "end": 2 * IDS, "reasoning_end": None, "finish_reason": "stop", "stop_id": 2}
    columns = {name: rows[name] for name in SHARD.names if name in rows.column_names}
    columns |= {
        "input_ids": _ids(num, 2 * IDS),
        "prompt_len": IDS,
        "spans": [span],
        "finish_reason": finish,
        "stop_id": 2,
        "engine": "none",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return _table(SHARD, num, columns)


def _shard(storage: Storage, numbers: Numbers, cut: npt.NDArray[np.bool_], old: npt.NDArray[np.bool_]) -> ObjectRef:
    return storage.put_table("shards", _sealed(_rows(numbers, old, _budgets(cut)), _finishes(cut)))


def _quarantine(storage: Storage, numbers: Numbers) -> ObjectRef:
    table = _sealed(_rows(numbers))
    columns = {name: table[name] for name in table.column_names} | {"reason": "degenerate", "detail": ""}
    return storage.put_table("quarantine", _table(QUARANTINE, len(numbers), columns))


def _part(
    storage: Storage,
    numbers: Numbers,
    cut: npt.NDArray[np.bool_] | None = None,
    old: npt.NDArray[np.bool_] | None = None,
) -> None:
    rows = _rows(numbers, old, BUDGET if cut is None else _budgets(cut))
    columns = {name: rows[name] for name in ROW.names}
    columns |= {
        "output_ids": _ids(len(numbers), IDS, pa.LargeListArray.from_arrays),
        "completion_tokens": IDS,
        "finish_type": "stop" if cut is None else _finishes(cut),
        "matched": "2",
        "engine": "none",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    storage.put_table(completions.FOLDER, _table(COMPLETION, len(numbers), columns))


def _budgets(cut: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(np.where(cut, SMALLER, BUDGET), pa.int32())


def _finishes(cut: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.compute.if_else(pa.array(cut), "length", "stop")
