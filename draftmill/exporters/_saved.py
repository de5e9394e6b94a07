"""A folder as `datasets.Dataset.save_to_disk` leaves it, which `datasets.load_from_disk` opens.

Written with Arrow alone: the `datasets` library would first write everything to its
cache, then again to the folder. What it reads is small and has been stable since 2021:
Arrow streams, the list of them (`state.json`) and a description whose features it takes
from the streams where none are given (`dataset_info.json`). tests/exporters opens the folders
with the library itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec import AbstractFileSystem

from draftmill.arrays import ID_DTYPE, Ids
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask

BATCH_ROWS = 256
"""Rows in memory at once."""

FILE_IDS = 64 << 20
"""Ids of one Arrow file: with int64 ids and masks 1 GiB, which readers map into memory."""


def write_saved(
    folder: AbstractFileSystem,
    name: str,
    examples: Iterable[Example],
    batch: Callable[[Sequence[Example]], pa.RecordBatch],
    *,
    schema: pa.Schema,
    format_type: str | None = None,
) -> list[str]:
    """The folder `name`; paths of its files. `format_type`: what rows are read as ("torch")."""
    batches = _batches(examples)
    files: list[str] = []
    folder.makedirs(name, exist_ok=True)
    more = True
    while more:
        files.append(f"data-{len(files):05}.arrow")
        with folder.open(f"{name}/{files[-1]}", "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            more = _fill(writer, batches, batch)
    state: dict[str, Any] = {
        "_data_files": [{"filename": file} for file in files],
        "_fingerprint": None,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": format_type,
        "_output_all_columns": False,
        "_split": None,
    }
    described = {"state.json": state, "dataset_info.json": {"description": "made by draftmill", "features": None}}
    for file, content in described.items():
        folder.pipe_file(f"{name}/{file}", json.dumps(content, indent=2).encode())
    return [f"{name}/{file}" for file in (*files, *described)]


def _batches(examples: Iterable[Example]) -> Iterator[list[Example]]:
    rows = iter(examples)
    while batch := list(islice(rows, BATCH_ROWS)):
        yield batch


def _fill(
    writer: pa.RecordBatchStreamWriter,
    batches: Iterator[list[Example]],
    batch: Callable[[Sequence[Example]], pa.RecordBatch],
) -> bool:
    """Whether the file is full, so that there may be more."""
    num_ids = 0
    for rows in batches:
        writer.write_batch(batch(rows))
        num_ids += sum(len(example.input_ids_T) for example in rows)
        if num_ids >= FILE_IDS:
            return True
    return False


def read_saved(folder: AbstractFileSystem, name: str) -> Iterator[tuple[Ids, LossMask]]:
    """The columns `input_ids` and `loss_mask` of such a folder."""
    state = json.loads(folder.cat_file(f"{name}/state.json"))
    for entry in state["_data_files"]:
        with folder.open(f"{name}/{entry['filename']}", "rb") as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield from zip(_rows(batch["input_ids"], ID_DTYPE), _rows(batch["loss_mask"], np.uint8), strict=True)


def list_column(rows: Sequence[np.ndarray], of: pa.DataType) -> pa.Array:
    """Arrays, one a row, as a list column of this type."""
    offsets_B1 = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets_B1[1:])
    return pa.ListArray.from_arrays(pa.array(offsets_B1), pa.array(np.concatenate(rows)).cast(of))


def _rows(column: pa.ListArray, dtype: np.dtype | type) -> Iterator[np.ndarray]:
    flat, offsets_B1 = column.values.to_numpy(), column.offsets.to_numpy()
    return (flat[a:b].astype(dtype) for a, b in pairwise(offsets_B1))
