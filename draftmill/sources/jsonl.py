"""JSON lines: one object a line, under any name.

Lines end at LF and nowhere else: U+2028, U+2029 and U+0085 are ordinary
characters inside a string. Blank lines are no rows, but they count, so that
`line` is what an editor shows. A byte-order mark at a line's beginning is
dropped (also of files glued together). A line that is not an object in UTF-8 is
one fault in the parser's words. NaN and Infinity, which Python's own writer
produces, and integers of any size are read; what they may not be is part of a
prompt. Memory is bounded by the longest line.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO

from draftmill.prompts.opening import open_utf8
from draftmill.prompts.source_row import SourceRow, kind
from draftmill.sources._beginning import LINES_SUFFIXES, Beginning, beginning

MAX_LINE_BYTES = 256 * 2**20
"""A longer line is no prompt for any context, and would fill the memory."""

SUFFIXES = LINES_SUFFIXES

_JSON_SPACE = b" \t\r\n"


def sniff(path: str, head: bytes) -> bool:
    """True for content that begins with an object on a line, and for a name of the format where content is nothing."""
    return beginning(path, head) is Beginning.JSON_LINES


def read(path: str, *, columns: frozenset[str] | None = None) -> Iterator[SourceRow]:
    """The file's rows in order. Raises SourceError when it cannot be read, or is packed and cut."""
    with open_utf8(path) as stream:
        for number, line in enumerate(_lines(stream), start=1):
            if len(line) > MAX_LINE_BYTES:
                yield SourceRow(number, None, f"a line of more than {MAX_LINE_BYTES // 2**20} MiB")
            elif content := line.removeprefix(codecs.BOM_UTF8).strip(_JSON_SPACE):
                row = _row(number, content)
                torn = row.fault is not None and not line.endswith(b"\n")
                yield SourceRow(number, None, f"{row.fault}; the last line: half written?") if torn else row


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_BYTES + 1):
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES + 1)
        yield line


def _row(number: int, content: bytes) -> SourceRow:
    try:
        value = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        return SourceRow(number, None, f"not UTF-8: byte 0x{content[error.start]:02x} at {error.start + 1} of the line")
    except json.JSONDecodeError as error:
        return SourceRow(number, None, f"not JSON: {error.msg} (column {error.colno})")
    except RecursionError:
        return SourceRow(number, None, "not readable: nested too deeply")
    except ValueError as error:
        # An integer of more than 4300 digits, which Python refuses to read.
        return SourceRow(number, None, f"not readable: {error}")
    if not isinstance(value, dict):
        return SourceRow(number, None, f"{kind(value)}, expected an object")
    return SourceRow(number, value, None)
