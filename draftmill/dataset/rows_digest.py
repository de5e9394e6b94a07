"""A digest of rows that does not depend on how they are cut into objects, row groups or chunks.

Two streams of tables have the same digest when they hold the same rows in the
same order, nulls and all. Each array of a column (validity, lengths, values) is
hashed as a stream of its own. Held in memory: one table at a time.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class RowsDigest:
    """Takes tables of one schema, in order."""

    def __init__(self) -> None:
        self._streams: dict[str, Any] = defaultdict(hashlib.sha256)
        self.rows = 0

    def update(self, table: pa.Table) -> None:
        """The next rows."""
        self.rows += table.num_rows
        for name in table.column_names:
            for chunk in table.column(name).chunks:
                self._take(name, chunk)

    def hexdigest(self) -> str:
        """Of all rows so far."""
        parts = [f"{self.rows}", *(f"{name} {stream.hexdigest()}" for name, stream in sorted(self._streams.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _take(self, name: str, array: pa.Array) -> None:
        self._hash(f"{name} valid", array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8))
        kind = array.type
        if pa.types.is_struct(kind):
            for field in kind:
                self._take(f"{name}.{field.name}", pc.struct_field(array, field.name))
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._hash(f"{name} lengths", _lengths(pc.list_value_length(array)))
            self._take(f"{name} items", pc.list_flatten(array))
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            self._hash(f"{name} lengths", _lengths(pc.binary_length(array)))
            self._streams[f"{name} text"].update(_text(array.drop_null().cast(pa.large_string())))
        else:
            values = array.cast(pa.int64()) if pa.types.is_timestamp(kind) else array
            self._hash(f"{name} values", values.drop_null().to_numpy(zero_copy_only=False))

    def _hash(self, stream: str, values: Any) -> None:
        self._streams[stream].update(np.ascontiguousarray(values).data)


def _text(array: pa.Array) -> bytes | memoryview:
    """Strings without nulls end to end, as they lie in memory; their lengths tell them apart."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return b""
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def _lengths(lengths: pa.Array) -> Any:
    return lengths.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
