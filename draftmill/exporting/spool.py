"""Examples on disk between reading and writing: sorted into an order without all of them in memory.

Each part (train, validation) is scattered over buckets by the first bits of its
examples' order, so that a bucket holds what is next to each other in the end; then
each bucket is read, sorted and handed on. In memory are the buffers of the buckets,
later one bucket. Without an order there is one bucket, and it is read as it was written.

The files are temporary, Arrow's own format, on this machine; TMPDIR says where.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from draftmill.arrays import flatten
from draftmill.dataset.schema import SPAN
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask
from draftmill.records import Span

BUCKET_IDS = 16 << 20
"""Ids of a bucket, about: 64 MiB, and as many bytes of masks, are sorted at once."""

BUFFER_IDS = 1 << 20
"""Ids that wait in memory, over all buckets, before they are written."""

READ_ROWS = 256
"""Rows of an unsorted bucket in one batch."""

SPOOL = pa.schema(
    [
        ("order", pa.binary()),
        ("row_key", pa.string()),
        ("prompt_id", pa.string()),
        ("input_ids", pa.large_list(pa.int32())),
        ("loss_mask", pa.large_binary()),
        ("prompt_len", pa.int32()),
        ("reasoning_end", pa.int32()),
        ("spans", pa.list_(SPAN)),
    ]
)

_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


class Spool:
    """One part's examples. `buckets`: 1 keeps them in the order they are added."""

    def __init__(self, folder: Path, *, buckets: int) -> None:
        folder.mkdir(parents=True)
        self._folder, self._buckets = folder, buckets
        self._waiting: dict[int, list[tuple[bytes, Example]]] = {}
        self._num_waiting = 0
        self._files = ExitStack()
        self._writers: dict[int, pa.RecordBatchFileWriter] = {}
        self.rows = 0

    def add(self, order: bytes, example: Example) -> None:
        """Takes an example in; `order` counts where there are several buckets."""
        bucket = int.from_bytes(order[:4], "big") * self._buckets >> 32 if self._buckets > 1 else 0
        self._waiting.setdefault(bucket, []).append((order, example))
        self._num_waiting += len(example.input_ids_T)
        self.rows += 1
        if self._num_waiting >= BUFFER_IDS:
            self._flush()

    def examples(self) -> Iterator[Example]:
        """All of them, once, in order. Nothing can be added any more."""
        self._flush()
        self._files.close()
        for bucket in sorted(self._writers):
            yield from self._bucket(bucket)

    def close(self) -> None:
        """Lets go of the files; the folder is the caller's to remove."""
        self._files.close()

    def _flush(self) -> None:
        for bucket, waiting in self._waiting.items():
            if bucket not in self._writers:
                writer = pa.ipc.new_file(self._path(bucket), SPOOL, options=_OPTIONS)
                self._writers[bucket] = self._files.enter_context(writer)
            for start in range(0, len(waiting), READ_ROWS):
                self._writers[bucket].write_batch(_batch(waiting[start : start + READ_ROWS]))
        self._waiting, self._num_waiting = {}, 0

    def _path(self, bucket: int) -> str:
        return str(self._folder / f"{bucket:06d}.arrow")

    def _bucket(self, bucket: int) -> Iterator[Example]:
        with pa.memory_map(self._path(bucket)) as file:
            reader = pa.ipc.open_file(file)
            if self._buckets == 1:
                for number in range(reader.num_record_batches):
                    yield from _examples(pa.Table.from_batches([reader.get_batch(number)]))
                return
            table = reader.read_all()
            yield from _examples(table, table["order"].to_pylist())


def _batch(rows: list[tuple[bytes, Example]]) -> pa.RecordBatch:
    examples = [example for _, example in rows]
    flat, offsets_B1 = flatten(example.input_ids_T for example in examples)
    columns: dict[str, Any] = {
        "order": [order for order, _ in rows],
        "row_key": [example.row_key for example in examples],
        "prompt_id": [example.prompt_id for example in examples],
        "loss_mask": [example.loss_mask_T.tobytes() for example in examples],
        "prompt_len": [example.prompt_len for example in examples],
        "reasoning_end": [example.reasoning_end for example in examples],
        "spans": [[asdict(span) for span in example.spans] for example in examples],
    }
    arrays = {name: pa.array(values, SPOOL.field(name).type) for name, values in columns.items()}
    arrays["input_ids"] = pa.LargeListArray.from_arrays(pa.array(offsets_B1), pa.array(flat))
    return pa.record_batch([arrays[name] for name in SPOOL.names], schema=SPOOL)


def _examples(table: pa.Table, orders: list[bytes] | None = None) -> Iterator[Example]:
    """Its rows, sorted by `orders` where there are any; ids are views into the table."""
    table = table.combine_chunks()
    ids = table["input_ids"].combine_chunks()
    flat, offsets_B1 = ids.values.to_numpy(), ids.offsets.to_numpy()
    places = range(len(ids)) if orders is None else sorted(range(len(ids)), key=orders.__getitem__)
    columns = {name: table[name] for name in SPOOL.names if name not in ("order", "input_ids")}
    for place in places:
        values = {name: column[place].as_py() for name, column in columns.items()}
        yield Example(
            row_key=values["row_key"],
            prompt_id=values["prompt_id"],
            input_ids_T=flat[offsets_B1[place] : offsets_B1[place + 1]],
            loss_mask_T=_mask(values["loss_mask"]),
            prompt_len=values["prompt_len"],
            reasoning_end=values["reasoning_end"],
            spans=tuple(Span(**span) for span in values["spans"]),
        )


def _mask(data: bytes) -> LossMask:
    return np.frombuffer(data, np.uint8)
