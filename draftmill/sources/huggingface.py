"""The Arrow files of Hugging Face `datasets`: of a `save_to_disk` folder, and of its cache.

Which files of a folder are rows, and of which split, is decided when files are
found (`prompts.saved`); here is one such file. They are Arrow IPC *streams*,
which end without a word where a writer was killed, so their last bytes are
looked at first. The Arrow *file* format (Feather) is read as well. Rows are
numbered from 1.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

from draftmill.errors import SourceError
from draftmill.prompts.opening import open_raw, shown
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import _columnar

SUFFIXES, BINARY = (".arrow", ".feather"), True

STREAM_MAGIC = b"\xff\xff\xff\xff"
"""What every message of a stream begins with."""

FILE_MAGIC = b"ARROW1"

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What a closed stream ends with."""


def sniff(path: str, head: bytes) -> bool:
    """True for the first bytes of an Arrow stream or file, whatever the name."""
    return head.startswith((STREAM_MAGIC, FILE_MAGIC))


def read(path: str, *, columns: frozenset[str] | None = None) -> Iterator[SourceRow]:
    """The file's rows in order. Raises SourceError for a file that is cut, damaged or no Arrow."""
    with open_raw(path) as raw:
        first = 1
        try:
            for batch in _batches(path, raw):
                names = batch.schema.names
                wanted = [index for index, name in enumerate(names) if columns is None or name in columns]
                part = batch.select(wanted)
                # Offsets are taken from the file as they are: a wrong one would read outside of the memory.
                part.validate(full=True)
                for start in range(0, batch.num_rows, _columnar.BATCH_ROWS):
                    piece = part.slice(start, _columnar.BATCH_ROWS)
                    yield from _columnar.rows(piece, names, first=first)
                    first += piece.num_rows
        except _columnar.FAULTS as error:
            raise _unreadable(path, f"at row {first}: {' '.join(str(error).split())}") from error


def _batches(path: str, raw: io.BufferedReader) -> Iterator[pa.RecordBatch]:
    if raw.peek(len(FILE_MAGIC)).startswith(FILE_MAGIC):
        reader = pa.ipc.open_file(raw)
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
        return
    if raw.seek(0, io.SEEK_END) < len(END_OF_STREAM):
        raise _unreadable(path, "it is shorter than any Arrow stream")
    raw.seek(-len(END_OF_STREAM), io.SEEK_END)
    if raw.read() != END_OF_STREAM:
        raise _unreadable(path, "it ends without the end of its stream: half written?")
    raw.seek(0)
    yield from pa.ipc.open_stream(raw)


def _unreadable(path: str, words: str) -> SourceError:
    return SourceError(
        "an Arrow file that cannot be read",
        value=f"{shown(path)}, {words}",
        expected="a whole Arrow stream, as `save_to_disk` writes it, or an Arrow file",
        remedy="fetch or write the file again; of a folder saved by `datasets`, name the folder",
    )
