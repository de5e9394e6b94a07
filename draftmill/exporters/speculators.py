"""speculators: its training folder, ready for `train`, and the JSON lines that its `prepare-data` passes through.

The folder is what `prepare-data` makes of the lines: `input_ids`, `loss_mask` (lists of
int64), `seq_len`, read as tensors, and `token_freq.pt`, by which it chooses a reduced
draft vocabulary. The lines are for who wants its own cutting and filtering.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
from fsspec import AbstractFileSystem

from draftmill.arrays import Ids
from draftmill.exporters._rows import WRITE_BLOCK_BYTES, json_line, line
from draftmill.exporters._saved import list_column, read_saved, write_saved
from draftmill.exporting.counts import IdCounts
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask
from draftmill.exporting.vocabulary import Vocabulary

SCHEMA = pa.schema([("input_ids", pa.list_(pa.int64())), ("loss_mask", pa.list_(pa.int64())), ("seq_len", pa.int64())])

FREQUENCIES = "token_freq.pt"
"""Supervised ids and how often each occurs, as `torch.save` writes a dict."""


def write(folder: AbstractFileSystem, part: str, examples: Iterable[Example], *, vocabulary: Vocabulary) -> list[str]:
    """`PART/`, the training folder, and `PART.jsonl`."""
    counts, lines = IdCounts(), f"{part}.jsonl"
    with folder.open(lines, "wb", block_size=WRITE_BLOCK_BYTES) as file:
        paths = write_saved(folder, part, _noted(examples, counts, file), _batch, schema=SCHEMA, format_type="torch")
    token_freq = f"{part}/{FREQUENCIES}"
    with folder.open(token_freq, "wb") as file:
        write_token_freq(file, counts)
    return [*paths, token_freq, lines]


def read(folder: AbstractFileSystem, part: str) -> Iterator[tuple[Ids, LossMask]]:
    """What `train` sees."""
    return read_saved(folder, part)


def write_token_freq(file: BinaryIO, counts: IdCounts) -> None:
    """`torch.save` of a plain dict without torch: a zip that holds a pickle, as PyTorch has written since 1.6.

    Only a dict of ints, so that `torch.load(weights_only=True)` takes it.
    """
    table = counts.to_table()
    frequencies = dict(zip(table["token_id"].to_pylist(), table["count"].to_pylist(), strict=True))
    content = {"data.pkl": pickle.dumps(frequencies, protocol=2), "byteorder": b"little", "version": b"3\n"}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in content.items():
            archive.writestr(f"token_freq/{name}", data)


def _noted(examples: Iterable[Example], counts: IdCounts, lines: BinaryIO) -> Iterator[Example]:
    """The examples, counted and written as lines while they go by."""
    for example in examples:
        counts.add(example.input_ids_T[example.loss_mask_T == 1])
        lines.write(json_line(line(example)))
        yield example


def _batch(examples: Sequence[Example]) -> pa.RecordBatch:
    ids = list_column([example.input_ids_T for example in examples], pa.int64())
    masks = list_column([example.loss_mask_T for example in examples], pa.int64())
    lengths = pa.array([len(example.input_ids_T) for example in examples], pa.int64())
    return pa.record_batch([ids, masks, lengths], schema=SCHEMA)
