"""Parquet of any writer; rows are numbered from 1.

Messages may be a list of structs or JSON text. Read batch by batch, and of each
row group only the columns that matter, so memory is bounded by those columns of
the largest row group and a column of embeddings or images costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from draftmill.errors import SourceError
from draftmill.prompts.opening import open_raw, shown
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import _columnar

MAGIC = b"PAR1"

SUFFIXES, BINARY = (".parquet", ".pq"), True


def sniff(path: str, head: bytes) -> bool:
    """True for Parquet's first bytes, whatever the name."""
    return head.startswith(MAGIC)


def read(path: str, *, columns: frozenset[str] | None = None) -> Iterator[SourceRow]:
    """The file's rows in order. Raises SourceError for a file that is cut, damaged, packed once more or encrypted."""
    with open_raw(path) as raw:
        first = 1
        try:
            file = pq.ParquetFile(raw)
            names = file.schema_arrow.names
            wanted = [name for name in names if columns is None or name in columns]
            for batch in _batches(file, names, wanted):
                yield from _columnar.rows(batch, names, first=first)
                first += batch.num_rows
        except _columnar.FAULTS as error:
            raise _unreadable(path, first, error) from error


def _batches(file: pq.ParquetFile, names: list[str], wanted: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(_columnar.BATCH_ROWS, columns=wanted):
        # Parquet selects by path, and a name with a dot in it may be another column's path.
        yield batch.select([name for name in batch.schema.names if name in wanted])


def _unreadable(path: str, row: int, error: Exception) -> SourceError:
    return SourceError(
        "a Parquet file that cannot be read",
        value=f"{shown(path)}, at row {row}: {' '.join(str(error).split())}",
        expected="a whole Parquet file, neither packed once more nor encrypted",
        remedy="fetch or write the file again",
    )
