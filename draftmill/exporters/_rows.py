"""JSON lines of `input_ids` and `loss_mask`, as SpecForge and speculators read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
from fsspec import AbstractFileSystem

from draftmill.arrays import Ids, ids_array
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask

WRITE_BLOCK_BYTES = 64 << 20
"""What one request takes to S3: a file of at most 10,000 such blocks is 640 GB, far more than a trainer reads."""

READ_BLOCK_BYTES = 8 << 20
"""What one request brings from S3."""

_OBEYED = re.compile(
    "[\x80-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""C1 controls, bidirectional and invisible formats, line separators. Inside of strings only: JSON itself is ASCII."""

LINE = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
"""How a row is written: arrays as lists, one row a line."""


def write_lines(folder: AbstractFileSystem, path: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """A file with one JSON object a line; arrays are written as lists."""
    with folder.open(path, "wb", block_size=WRITE_BLOCK_BYTES) as file:
        for line in lines:
            file.write(json_line(line))


def json_line(line: Mapping[str, Any]) -> bytes:
    """One object and its newline; arrays as lists.

    What a terminal obeys and orjson leaves as it is gets escaped, too: text of prompts and models is not trusted.
    Readers get the same text back.
    """
    data = orjson.dumps(line, option=LINE)
    return data if data.isascii() else _OBEYED.sub(_escaped, data.decode()).encode()


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def read_lines(folder: AbstractFileSystem, path: str) -> Iterator[tuple[Ids, LossMask]]:
    """The ids and masks of such a file."""
    with folder.open(path, "rb", block_size=READ_BLOCK_BYTES) as file:
        for line in file:
            row = orjson.loads(line)
            yield ids_array("input_ids", row["input_ids"]), np.array(row["loss_mask"], np.uint8)


def line(example: Example) -> dict[str, Any]:
    """What both trainers want of a row, and nothing else."""
    return {"input_ids": example.input_ids_T, "loss_mask": example.loss_mask_T}
