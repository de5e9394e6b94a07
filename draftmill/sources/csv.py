"""Delimited text with a header: comma, semicolon, tab or bar, told by the header.

All values are text as typed: `NA`, `00123` and `2024-01-01` stay what they are.
An empty field is no value. Fields in quotes may hold delimiters, line ends and
doubled quotes. The line of a row is the one where it begins.

A record with more or fewer fields than the header, or with a quote in a wrong
place, is one fault. A quote that is never closed, and any encoding but UTF-8
(or UTF-16 with its byte-order mark), refuse the file: nobody can say which rows
are lost behind them.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import TextIO

from draftmill.errors import SourceError
from draftmill.prompts.opening import open_utf8, shown
from draftmill.prompts.source_row import SourceRow
from draftmill.sources._beginning import PROMPT_COLUMNS, TABLE_SUFFIXES, Beginning, beginning, delimiter

MAX_FIELD_CHARS = 256 * 2**20
"""A longer field is no prompt for any context. The csv module's own limit, 131,072, is less than one context."""

NAMES_CHARS = 200
"""Longest quotation of a header."""

SUFFIXES = TABLE_SUFFIXES

_SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n?\Z")
"""Excel's own first line, which names the delimiter."""


def sniff(path: str, head: bytes) -> bool:
    """True for text that is no JSON under the name of a table, and for a header with a prompt column."""
    return beginning(path, head) is Beginning.TABLE


def read(path: str, *, columns: frozenset[str] | None = None) -> Iterator[SourceRow]:
    """The file's rows in order. Raises SourceError for what is not a table in UTF-8."""
    csv.field_size_limit(MAX_FIELD_CHARS)
    # newline="": line ends inside quotes stay as they are.
    with open_utf8(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        yield from _Table(path, text).rows(columns or PROMPT_COLUMNS)


class _Table:
    """A file's lines, and the records they make."""

    def __init__(self, path: str, text: TextIO) -> None:
        self._path = path
        self._text = text
        self._num_lines = 0

    def rows(self, columns: frozenset[str]) -> Iterator[SourceRow]:
        """A SourceRow for every record behind the header."""
        first = self._next_line()
        if named := _SEPARATOR_LINE.match(first):
            sign, lines = named[1], iter(self._next_line, "")
        else:
            sign = delimiter(first.rstrip("\r\n"))
            lines = itertools.chain([first] if first else [], iter(self._next_line, ""))
        records = self._records(csv.reader(lines, delimiter=sign, strict=True))
        names = self._names(next(records, (0, [])), columns)
        empty = True
        for line, record in records:
            empty = False
            if isinstance(record, str):
                yield SourceRow(line, None, record)
            elif len(record) != len(names):
                yield SourceRow(line, None, f"{len(record)} fields, expected {len(names)} as in the header")
            else:
                values = (value or None for value in record)
                yield SourceRow(line, dict(zip(names, values, strict=True)), None)
        if names and empty and columns.isdisjoint(names):
            # "Not Found", as a server says it, is a table of one name and no rows.
            raise self._refused(f"it has no rows and no column that is known: {', '.join(names)[:NAMES_CHARS]}")

    def _records(self, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str] | str]]:
        """The line where each record begins, and its fields, or what is wrong with it."""
        # The first line is read before the reader asks for it.
        line = self._num_lines
        while True:
            try:
                record: list[str] | str = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if self._num_lines > line:
                    # A quote that was opened lines before: nobody can say where the next record begins.
                    raise self._refused(f"lines {line} to {self._num_lines}: {error}; a quote never closed?") from error
                record = f"not a record: {error}"
            if record:
                yield line, record
            line = self._num_lines + 1

    def _names(self, header: tuple[int, list[str] | str], columns: frozenset[str]) -> list[str]:
        line, found = header
        if isinstance(found, str):
            raise self._refused(f"line {line}, the header: {found}")
        names = [name.strip() for name in found]
        twice = next((name for name in names if names.count(name) > 1 and name in columns), None)
        if twice is not None:
            raise self._refused(f"line {line}, the header: two columns are called {twice!r}")
        return names

    def _next_line(self) -> str:
        try:
            line = self._text.readline()
        except UnicodeDecodeError as error:
            bad = self._num_lines + 1 + error.object.count(b"\n", 0, error.start)
            raise self._refused(f"line {bad}: not UTF-8: byte 0x{error.object[error.start]:02x}") from error
        self._num_lines += bool(line)
        return line

    def _refused(self, words: str) -> SourceError:
        return SourceError(
            "a table that cannot be read as a whole",
            value=f"{shown(self._path)}, {words}",
            expected="UTF-8 text, a header, and a record of as many fields each, in quotes where they hold more lines",
            remedy="write the file again, from Excel as `CSV UTF-8`; of a file with such a fault nothing is read",
        )
