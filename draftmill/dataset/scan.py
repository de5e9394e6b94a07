"""Some columns of many Parquet objects, in order and in bounded memory.

Keys take a few bytes of rows that have thousands of ids: pyarrow's scanner fetches only
the columns named, of some objects at once, also over S3. In memory are those columns
of the objects under way. Each object is read through `Storage`, which waits for a
storage that is away and names the object that cannot be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

import pyarrow as pa
import pyarrow.dataset as pads

from draftmill.dataset.storage import Storage

OBJECTS_AT_ONCE = 8
"""Objects read in parallel: on S3 each is a few small requests that wait longer than they transfer."""

NEAR_BYTES = 1 << 20
"""Columns nearer than this are fetched by one request: transferring it takes about as long as asking again."""

LARGEST_REQUEST_BYTES = 32 << 20
"""Of one request: what it fetches lies in memory until it is decoded."""

_PARQUET = pads.ParquetFileFormat(
    default_fragment_scan_options=pads.ParquetFragmentScanOptions(
        pre_buffer=True,
        cache_options=pa.CacheOptions(hole_size_limit=NEAR_BYTES, range_size_limit=LARGEST_REQUEST_BYTES),
    )
)


def tables(storage: Storage, paths: Sequence[str], schema: pa.Schema) -> Generator[pa.Table, None, None]:
    """Of each object in turn the schema's columns; one that it has not is left out.

    Raises FileNotFoundError for an object that is gone; DatasetError when one cannot be read.
    """
    for _, read in _read_ahead(storage, paths, schema):
        yield read.result()


def tables_there(
    storage: Storage, paths: Sequence[str], schema: pa.Schema
) -> Generator[tuple[str, pa.Table], None, None]:
    """As `tables`, with the path of each; an object that is gone is left out."""
    for path, read in _read_ahead(storage, paths, schema):
        try:
            table = read.result()
        except FileNotFoundError:
            continue
        yield path, table


def _read_ahead(
    storage: Storage, paths: Sequence[str], schema: pa.Schema
) -> Generator[tuple[str, Future[pa.Table]], None, None]:
    """Each path with its read, in order, while later ones are under way."""
    under_way: deque[tuple[str, Future[pa.Table]]] = deque()
    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as pool:
        try:
            for path in paths:
                under_way.append((path, pool.submit(_read, storage, path, schema)))
                if len(under_way) > OBJECTS_AT_ONCE:
                    yield under_way.popleft()
            while under_way:
                yield under_way.popleft()
        finally:
            for _, waiting in under_way:
                waiting.cancel()


def _read(storage: Storage, path: str, schema: pa.Schema) -> pa.Table:
    def scanned(file: BinaryIO) -> pa.Table:
        fragment = _PARQUET.make_fragment(file)
        there = [name for name in schema.names if name in fragment.physical_schema.names]
        return fragment.to_table(schema, columns=there, use_threads=False)

    return storage.read_open(path, scanned)
