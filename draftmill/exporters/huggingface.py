"""Hugging Face: a folder for `datasets.load_from_disk`, with the boundaries beside ids and mask.

For trainers of one's own: whoever wants another mask has the spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa
from fsspec import AbstractFileSystem

from draftmill.arrays import Ids
from draftmill.dataset.schema import SPAN
from draftmill.exporters._saved import list_column, read_saved, write_saved
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask
from draftmill.exporting.vocabulary import Vocabulary

SCHEMA = pa.schema(
    [
        ("row_key", pa.string()),
        ("prompt_id", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("prompt_len", pa.int32()),
        ("reasoning_end", pa.int32()),
        ("spans", pa.list_(SPAN)),
    ]
)


def write(folder: AbstractFileSystem, part: str, examples: Iterable[Example], *, vocabulary: Vocabulary) -> list[str]:
    """`PART/`."""
    return write_saved(folder, part, examples, _batch, schema=SCHEMA)


def read(folder: AbstractFileSystem, part: str) -> Iterator[tuple[Ids, LossMask]]:
    """What `load_from_disk` sees."""
    return read_saved(folder, part)


def _batch(examples: Sequence[Example]) -> pa.RecordBatch:
    plain = {
        "row_key": [example.row_key for example in examples],
        "prompt_id": [example.prompt_id for example in examples],
        "prompt_len": [example.prompt_len for example in examples],
        "reasoning_end": [example.reasoning_end for example in examples],
        "spans": [[asdict(span) for span in example.spans] for example in examples],
    }
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in plain.items()}
    arrays["input_ids"] = list_column([example.input_ids_T for example in examples], pa.int32())
    arrays["loss_mask"] = list_column([example.loss_mask_T for example in examples], pa.int8())
    return pa.record_batch([arrays[name] for name in SCHEMA.names], schema=SCHEMA)
