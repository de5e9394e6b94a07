"""Tables as the bytes of an object: Parquet, zstd, the same bytes for the same rows."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 1024
"""Rows a Parquet row group holds: at 32k ids a row, a reader holds about 128 MB at once."""


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as Parquet, zstd. Depends on its rows and columns only, not on how its memory is cut into pieces."""
    sink = io.BytesIO()
    plain = table.replace_schema_metadata(None).combine_chunks()
    pq.write_table(plain, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    return sink.getvalue()
