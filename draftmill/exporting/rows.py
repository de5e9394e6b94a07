"""A manifest's good rows with their ids, a row group at a time: all of them are never in memory.

What is written on, for a trainer, is read whole and checked against the manifest's
hash first: under a new name nothing would tell any more that it was damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from draftmill.dataset.schema import SHARD
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.dataset.stored import sound_bytes


def sound_rows(
    storage: Storage, refs: Sequence[ObjectRef], columns: Sequence[str] = tuple(SHARD.names)
) -> Iterator[pa.Table]:
    """These columns of the objects' rows, in their order, as tables of one row group (about 1,000 rows at most).

    Memory: one object as it lies (at most about 128 MiB, compressed) and one row group. Raises DatasetError, also for
    an object that is gone or is not what the manifest lists.
    """
    for ref in refs:
        file = pq.ParquetFile(pa.BufferReader(sound_bytes(storage, ref)))
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=list(columns)).replace_schema_metadata(None)
