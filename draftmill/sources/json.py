"""JSON as one value: an array of objects, or an object around such an array.

One object over several lines is one row, several such values after each other
(as jq writes them) are read like an array. An object whose only list of objects
is under a key that is no prompt column holds the rows there: {"version": 1,
"data": [...]}. Rows are numbered from 1.

An array is read element by element, so memory is bounded by its longest
element. What is not JSON (a comma before the bracket, a cut file) is refused
with line and column: nothing of a file is kept of which only a part was read.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO, Any

from draftmill.errors import SourceError
from draftmill.prompts.opening import open_utf8, shown
from draftmill.prompts.source_row import SourceRow, kind
from draftmill.sources._beginning import JSON_SPACE, JSON_SUFFIX, PROMPT_COLUMNS, Beginning, beginning, wrapped

BLOCK_BYTES = 2**20
"""Bytes read at a time; as many more as are held already while a value is not complete."""

MAX_VALUE_CHARS = 256 * 2**20
"""A longer element, or object around all rows, would fill the memory."""

SUFFIXES = (JSON_SUFFIX,)

_DECODER = json.JSONDecoder()


def sniff(path: str, head: bytes) -> bool:
    """True for an array, and for an object that is no line of its own."""
    return beginning(path, head) is Beginning.JSON


def read(path: str, *, columns: frozenset[str] | None = None) -> Iterator[SourceRow]:
    """The rows in order. Raises SourceError for what is not JSON as a whole."""
    with open_utf8(path) as stream:
        for number, value in enumerate(_rows(_Text(path, stream), columns or PROMPT_COLUMNS), start=1):
            if isinstance(value, dict):
                yield SourceRow(number, value, None)
            else:
                yield SourceRow(number, None, f"{kind(value)}, expected an object")


def _rows(text: _Text, columns: frozenset[str]) -> Iterator[Any]:
    while (start := text.next_sign()) and start in "[{":
        if start == "[":
            yield from _elements(text)
            continue
        value = text.value()
        key = wrapped(value, columns)
        yield from [value] if key is None else value[key]
    if start:
        raise text.refused("more text behind the end of the value" if text.begun else "no array and no object")


def _elements(text: _Text) -> Iterator[Any]:
    text.step()
    if text.next_sign() == "]":
        text.step()
        return
    while True:
        if text.next_sign() == "]":
            raise text.refused("a comma before the closing bracket")
        yield text.value()
        sign = text.next_sign()
        if sign not in (",", "]"):
            raise text.refused("the file ends inside the array: half written?" if not sign else "no comma in between")
        text.step()
        if sign == "]":
            return


class _Text:
    """The file's text as far as it is read, and a place in it."""

    def __init__(self, path: str, stream: IO[bytes]) -> None:
        self.begun = False
        self._path = path
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._ended = False
        self._text = ""
        self._at = 0
        # Of the first character held.
        self._line = 1
        self._column = 1

    def next_sign(self) -> str:
        """The next character that is no white space, not passed; "" at the end."""
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in JSON_SPACE:
                self._at += 1
            if self._at < rest:
                return self._text[self._at]
            if self._ended:
                return ""
            self._more()

    def step(self) -> None:
        """Pass one character."""
        self.begun = True
        self._at += 1

    def value(self) -> Any:
        """The JSON value that begins here, and pass it."""
        self.begun = True
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    at_end = error.pos >= len(self._text.rstrip(JSON_SPACE))
                    raise self.refused(error.msg + (" (half written?)" if at_end else ""), error.pos) from error
            except RecursionError as error:
                raise self.refused("nested too deeply") from error
            except ValueError as error:
                # An integer of more than 4300 digits, which Python refuses to read.
                raise self.refused(str(error)) from error
            else:
                # A number may go on in the next block.
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            self._more()

    def refused(self, words: str, place: int | None = None) -> SourceError:
        """The error for the whole file, with line and column of `place`, here by default."""
        line, column = self._position(self._at if place is None else place)
        return SourceError(
            "a file that is not JSON as a whole",
            value=f"{shown(self._path)}, line {line}, column {column}: {words}",
            expected="an array of objects, or one object; of a file with a fault nothing is read",
            remedy="correct the file; as JSON lines (an object a line) only the broken rows would be left out",
        )

    def _position(self, place: int) -> tuple[int, int]:
        newlines = self._text.count("\n", 0, place)
        if not newlines:
            return self._line, self._column + place
        return self._line + newlines, place - self._text.rfind("\n", 0, place)

    def _more(self) -> None:
        self._line, self._column = self._position(self._at)
        rest = self._text[self._at :]
        if len(rest) > MAX_VALUE_CHARS:
            self._text, self._at = rest, 0
            raise self.refused(f"a value of more than {MAX_VALUE_CHARS // 2**20} Mi characters")
        # Twice as much each time: a long value is tried a few times only.
        block = self._stream.read(max(BLOCK_BYTES, len(rest)))
        self._ended = not block
        try:
            self._text, self._at = rest + self._decoder.decode(block, final=self._ended), 0
        except UnicodeDecodeError as error:
            self._text, self._at = rest + error.object[: error.start].decode("utf-8", "replace"), 0
            bad = error.object[error.start]
            raise self.refused(f"not UTF-8: byte 0x{bad:02x}", len(self._text)) from error
