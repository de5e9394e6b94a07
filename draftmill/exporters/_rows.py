"""JSON lines of `input_ids` and `loss_mask`, as SpecForge and speculators read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
from fsspec import AbstractFileSystem

from draftmill.arrays import Ids, ids_array
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask

BLOCK_BYTES = 8 << 20
"""Of a file that is read or written over S3: what one request takes along."""

LINE = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
"""How a row is written: arrays as lists, one row a line."""


def write_lines(folder: AbstractFileSystem, path: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """A file with one JSON object a line; arrays are written as lists."""
    with folder.open(path, "wb", block_size=BLOCK_BYTES) as file:
        for line in lines:
            file.write(orjson.dumps(line, option=LINE))


def read_lines(folder: AbstractFileSystem, path: str) -> Iterator[tuple[Ids, LossMask]]:
    """The ids and masks of such a file."""
    with folder.open(path, "rb", block_size=BLOCK_BYTES) as file:
        for line in file:
            row = orjson.loads(line)
            yield ids_array("input_ids", row["input_ids"]), np.array(row["loss_mask"], np.uint8)


def line(example: Example) -> dict[str, Any]:
    """What both trainers want of a row, and nothing else."""
    return {"input_ids": example.input_ids_T, "loss_mask": example.loss_mask_T}
