"""Small objects into large ones: the same rows in the same order, as a new manifest.

Nights of small chunks make thousands of small Parquet files, which every reader
opens one by one. Neighbours in the manifest's order are joined up to a target
size; objects that are large already are left alone, and so are the old objects:
earlier manifests still list them (`gc` removes them later).

Promises: an object's bytes are checked against the manifest before they are
taken over, and the digest of the rows against the new object's before it is
listed, so no damage and no mistake becomes the dataset's word. One input and
one output in memory at a time. Nothing to do makes no manifest. A run that seals
meanwhile, here or elsewhere, loses nothing: it seals by keys, and so what it
planned before holds after; when it was faster, compacting begins again on its
manifest and takes over what it has written so far.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from draftmill.dataset.create_only import who
from draftmill.dataset.manifest import DataRef, Manifest, Parent
from draftmill.dataset.next_version import seal_next
from draftmill.dataset.origin import data_ref, row_versions
from draftmill.dataset.rows_digest import RowsDigest
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.dataset.status import existing
from draftmill.dataset.storage import ROW_GROUP_ROWS, Storage
from draftmill.dataset.stored import not_as_listed, sound_bytes
from draftmill.errors import DatasetError
from draftmill.progress import listener

TARGET_BYTES = 128 << 20
"""Of a compacted object: readers like files of this size, and it is held in memory while it is written."""

TARGET_IDS = 64 << 20
"""Ids in it (256 MB as int32): bounds what a reader of the whole object holds, far below a list column's 2^31."""

SMALL = 0.5
"""Share of that from which on an object is large and is left alone: else each night rewrote the last one."""


IDS_COLUMN = "input_ids"


@dataclass(frozen=True, slots=True)
class Compacted:
    """`manifest`: the new one, None when there was nothing to do. Objects listed before and after."""

    manifest: Manifest | None
    objects_before: int
    objects_after: int

    def to_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest and self.manifest.version,
            "sealed": self.manifest is not None,
            "objects": {"before": self.objects_before, "after": self.objects_after},
        }


def compact(storage: Storage) -> Compacted:
    """Compact the newest manifest's shards and quarantine. Raises RecipeError without a dataset, DatasetError."""
    first = existing(storage)
    written: dict[tuple[str, ...], list[DataRef]] = {}

    def build(parent: Manifest | None) -> Manifest | None:
        assert parent is not None, "there was one, and manifests are never removed"
        shards = _compacted(storage, "shards", parent.shards, SHARD, written)
        quarantine = _compacted(storage, "quarantine", parent.quarantine, QUARANTINE, written)
        if (shards, quarantine) == (parent.shards, parent.quarantine):
            return None
        return parent.model_copy(
            update={
                "version": parent.version + 1,
                "parent": Parent(version=parent.version, sha256=parent.sha256),
                "created_at": datetime.now(UTC),
                "shards": shards,
                "quarantine": quarantine,
                "provenance": {**parent.provenance, "sealed_by": who()},
            }
        )

    sealed = seal_next(storage, build)
    before = len(first.shards) + len(first.quarantine)
    after = before if sealed is None else len(sealed.shards) + len(sealed.quarantine)
    return Compacted(sealed, before, after)


def groups(refs: Sequence[DataRef]) -> list[list[DataRef]]:
    """Neighbours to be joined, in order: each group fits TARGET_BYTES; what is large stands alone. Pure."""
    found: list[list[DataRef]] = []
    room = 0
    for ref in refs:
        small = ref.bytes < SMALL * TARGET_BYTES
        if small and ref.bytes <= room:
            found[-1].append(ref)
            room -= ref.bytes
        else:
            found.append([ref])
            # Behind a large one a new group begins.
            room = TARGET_BYTES - ref.bytes if small else 0
    return found


def _compacted(
    storage: Storage, folder: str, refs: list[DataRef], schema: pa.Schema, written: dict[tuple[str, ...], list[DataRef]]
) -> list[DataRef]:
    found = groups(refs)
    if len(found) < len(refs):
        listener().stage(f"{folder}: {len(refs):,} objects into {len(found):,}")
    result = []
    for group in found:
        paths = tuple(ref.path for ref in group)
        if paths not in written:
            written[paths] = _joined(storage, folder, group, schema) if len(group) > 1 else group
        result += written[paths]
    return result


def _joined(storage: Storage, folder: str, refs: Sequence[DataRef], schema: pa.Schema) -> list[DataRef]:
    """The objects' rows as one object; as several where it would hold too many ids."""
    versions = np.concatenate([row_versions(ref) for ref in refs])
    before, after = RowsDigest(), RowsDigest()
    joined: list[DataRef] = []
    for data in _files(_row_groups(storage, refs, schema), schema, before):
        num_rows = 0
        for table in _tables(data):
            after.update(table)
            num_rows += table.num_rows
        joined.append(data_ref(storage.put_parquet(folder, data, num_rows), versions[:num_rows]))
        versions = versions[num_rows:]
    if before.hexdigest() != after.hexdigest() or len(versions):
        raise DatasetError(
            "a compacted object does not hold the rows it was made of, so nothing was sealed",
            value=f"{after.rows} rows from {len(refs)} objects, first {refs[0].path}",
            expected=f"the same {sum(ref.rows for ref in refs)} rows in the same order",
            remedy="run `draftmill verify`; if it is clean this is a fault of draftmill: please report it",
        )
    return joined


def _files(tables: Iterator[pa.Table], schema: pa.Schema, digest: RowsDigest) -> Iterator[bytes]:
    """Parquet files of these row groups, each as many as TARGET_IDS allows; `digest` takes what goes in."""
    num_ids, sink = 0, io.BytesIO()
    writer = pq.ParquetWriter(sink, schema, compression="zstd")
    for table in tables:
        of_table = len(pc.list_flatten(table[IDS_COLUMN]))
        if num_ids and num_ids + of_table > TARGET_IDS:
            writer.close()
            yield sink.getvalue()
            num_ids, sink = 0, io.BytesIO()
            writer = pq.ParquetWriter(sink, schema, compression="zstd")
        digest.update(table)
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        num_ids += of_table
    writer.close()
    yield sink.getvalue()


def _row_groups(storage: Storage, refs: Sequence[DataRef], schema: pa.Schema) -> Iterator[pa.Table]:
    """The objects' rows in tables of ROW_GROUP_ROWS, the last one smaller."""
    waiting = schema.empty_table()
    for ref in refs:
        for table in _tables(sound_bytes(storage, ref)):
            waiting = pa.concat_tables([waiting, _of_schema(table, schema, ref)])
            while waiting.num_rows >= ROW_GROUP_ROWS:
                yield waiting.slice(0, ROW_GROUP_ROWS).combine_chunks()
                waiting = waiting.slice(ROW_GROUP_ROWS)
    if waiting.num_rows:
        yield waiting.combine_chunks()


def _tables(data: bytes) -> Iterator[pa.Table]:
    file = pq.ParquetFile(pa.BufferReader(data))
    for number in range(file.num_row_groups):
        yield file.read_row_group(number).replace_schema_metadata(None)


def _of_schema(table: pa.Table, schema: pa.Schema, ref: DataRef) -> pa.Table:
    if not table.schema.equals(schema):
        raise not_as_listed(ref.path, f"columns {', '.join(table.column_names)}", "the format's columns and types")
    return table
