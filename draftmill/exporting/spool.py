"""Examples on disk between reading and writing: sorted into an order without all of them in memory.

Each part (train, validation) is scattered over buckets by the beginning of its
examples' order, so that a bucket holds what is next to each other in the end; then
each bucket is read, sorted and handed on, or scattered again where it is too large.
In memory are what waits to be written, later one bucket. Without an order there is one
bucket, and it is read as it was written.

The files are temporary, Arrow's own format, on this machine; TMPDIR says where.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
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
"""Ids of a bucket, about: 64 MiB, and 16 MiB of masks, are sorted at once. One of twice as many is scattered again."""

BUCKETS_AT_MOST = 256
"""Files open at once, for each of two parts: half of the 1,024 that a process may have by default."""

BUFFER_IDS = 4 << 20
"""Ids that wait in memory, over all buckets, before they are written: 16 MiB, and 4 MiB of masks."""

ROW_IDS = 256
"""What a waiting row counts beside its ids: it takes about 1 KiB."""

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


Between = tuple[int, int]
"""[start, end): orders by their first PLACE_BYTES, as numbers."""

PLACE_BYTES = 8

ALL: Between = (0, 1 << 8 * PLACE_BYTES)


class Spool:
    """One part's examples. `buckets`: wanted; 1 keeps them in the order they are added. `between`: where all orders
    are."""

    def __init__(self, folder: Path, *, buckets: int, between: Between = ALL) -> None:
        folder.mkdir(parents=True)
        self._folder, self._buckets, self._between = folder, min(buckets, BUCKETS_AT_MOST), between
        self._waiting: dict[int, list[tuple[bytes, Example]]] = {}
        self._num_waiting = 0
        self._num_ids: Counter[int] = Counter()
        self._files = ExitStack()
        self._writers: dict[int, pa.RecordBatchFileWriter] = {}
        self.rows = 0

    def add(self, order: bytes, example: Example) -> None:
        """Takes an example in; `order` counts where there are several buckets."""
        bucket, num_ids = self._bucket_of(order), len(example.input_ids_T)
        # A copy: a view would keep all the rows in memory that were read with it.
        example = replace(example, input_ids_T=example.input_ids_T.copy())
        self._waiting.setdefault(bucket, []).append((order, example))
        self._num_waiting += num_ids + ROW_IDS
        self._num_ids[bucket] += num_ids
        self.rows += 1
        if self._num_waiting >= BUFFER_IDS:
            self._flush()

    def examples(self) -> Iterator[Example]:
        """All of them, once, in order. Nothing can be added any more."""
        self._flush()
        self._files.close()
        for bucket in sorted(self._writers):
            if self._buckets == 1:
                yield from self._as_added(bucket)
            elif self._num_ids[bucket] > 2 * BUCKET_IDS and self._part(bucket) != self._between:
                yield from self._scattered(bucket)
            else:
                yield from self._sorted(bucket)

    def close(self) -> None:
        """Lets go of the files; the folder is the caller's to remove."""
        self._files.close()

    def _bucket_of(self, order: bytes) -> int:
        start, end = self._between
        place = int.from_bytes(order[:PLACE_BYTES], "big") if self._buckets > 1 else start
        return (place - start) * self._buckets // (end - start)

    def _part(self, bucket: int) -> Between:
        """The orders that come into a bucket."""
        start, end = self._between
        first, behind = (start - number * (start - end) // self._buckets for number in (bucket, bucket + 1))
        return first, behind

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

    def _as_added(self, bucket: int) -> Iterator[Example]:
        for table in self._batches(bucket):
            yield from _examples(table, range(len(table)))

    def _sorted(self, bucket: int) -> Iterator[Example]:
        table = pa.concat_tables(self._batches(bucket)).combine_chunks()
        orders = table["order"].to_pylist()
        yield from _examples(table, sorted(range(len(table)), key=orders.__getitem__))

    def _scattered(self, bucket: int) -> Iterator[Example]:
        """A bucket that is too large to be sorted at once."""
        buckets = math.ceil(self._num_ids[bucket] / BUCKET_IDS)
        folder, between = self._folder / f"{bucket:06d}", self._part(bucket)
        with closing(Spool(folder, buckets=buckets, between=between)) as smaller:
            for table in self._batches(bucket):
                for order, example in zip(table["order"].to_pylist(), _examples(table, range(len(table))), strict=True):
                    smaller.add(order, example)
            Path(self._path(bucket)).unlink()
            yield from smaller.examples()

    def _batches(self, bucket: int) -> Iterator[pa.Table]:
        with pa.OSFile(self._path(bucket)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(number)])


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


def _examples(table: pa.Table, places: Sequence[int]) -> Iterator[Example]:
    """The rows at these places of a table of one chunk; ids are views into it."""
    ids = table["input_ids"].chunk(0)
    flat, offsets_B1 = ids.values.to_numpy(), ids.offsets.to_numpy()
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
