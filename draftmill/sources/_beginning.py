"""What the first bytes of a file are, for the formats of text to tell themselves apart.

Content decides; a name helps only where content says nothing (an empty file, a
first line that is broken). Exactly one answer for any bytes, so that at most
one plugin takes a file and the order in which they are asked is of no matter.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from enum import Enum

from draftmill.prompts.compression import without_packing
from draftmill.prompts.shapes import SHAPES

JSON_SPACE = " \t\r\n"

JSON_SUFFIX = ".json"

LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".psv")

DELIMITERS = ",;\t|"

SAMPLE_RECORDS = 5
"""Records that must have as many fields as the header before a file of another name is taken for a table."""

PROMPT_COLUMNS = frozenset(SHAPES)
"""A table of another name than .csv is told by one of these in its header."""

_LIST_OF_OBJECTS = re.compile(r'\{\s*"[^"]*"\s*:\s*\[\s*\{\s*"(?!(?:role|from|content|value)")')
"""The beginning of one object around all rows, as {"data": [{"prompt": ...}]}: not of a row with messages."""


class Beginning(Enum):
    """What a file is by its beginning."""

    JSON_LINES = "an object a line"
    JSON = "an array, or one value over several lines"
    TABLE = "delimited text with a header"
    OTHER = "none of these"


def beginning(path: str, head: bytes) -> Beginning:
    """`head`: the first bytes, unpacked, in UTF-8 or of no text at all."""
    name = without_packing(path)
    by_name = Beginning.JSON_LINES if name.endswith(LINES_SUFFIXES) else Beginning.OTHER
    if _foreign(head):
        return Beginning.OTHER
    text = _text(head)
    if text is None:
        return by_name
    start = text.lstrip(JSON_SPACE)
    if not start:
        return _of_nothing(name)
    if start[0] == "[":
        return _of_array(start, named_lines=by_name is Beginning.JSON_LINES)
    if start[0] == "{":
        return _of_object(start, named_lines=by_name is Beginning.JSON_LINES)
    if name.endswith(TABLE_SUFFIXES) or _has_table_header(start):
        return Beginning.TABLE
    return by_name


def _text(head: bytes) -> str | None:
    """The bytes as text, a character cut at the end left off; None for what no text holds."""
    decoded = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(head)
    return None if "\0" in decoded.partition("\n")[0] else decoded


def _foreign(head: bytes) -> bool:
    return head.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"))


def _of_nothing(name: str) -> Beginning:
    if name.endswith(TABLE_SUFFIXES):
        return Beginning.TABLE
    return Beginning.JSON_LINES if name.endswith((*LINES_SUFFIXES, JSON_SUFFIX)) else Beginning.OTHER


def _of_array(start: str, *, named_lines: bool) -> Beginning:
    # A file of lines may have a row that is an array by mistake: then the first line is one, and more follow.
    lines = [line for line in start.split("\n", 2)[:2] if line.strip(JSON_SPACE)]
    whole = len(lines) > 1 and all(_is_json(line) for line in lines)
    return Beginning.JSON_LINES if named_lines and whole else Beginning.JSON


def _of_object(start: str, *, named_lines: bool) -> Beginning:
    try:
        value, end = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        return _of_unfinished(start, named_lines=named_lines)
    # Several objects on a line, as Firehose glues them, are values after each other like those over several lines.
    if "\n" in start[:end] or start[end:].lstrip(" \t").startswith("{"):
        return Beginning.JSON
    alone = not start[end:].strip(JSON_SPACE)
    return Beginning.JSON if alone and wrapped(value) is not None else Beginning.JSON_LINES


def _of_unfinished(start: str, *, named_lines: bool) -> Beginning:
    """The first object is broken, or longer than the head."""
    first, *others = start.split("\n")
    if any(line.startswith("{") and _is_json(line) for line in others):
        return Beginning.JSON_LINES
    if named_lines:
        return Beginning.JSON_LINES
    if not others:
        return Beginning.JSON if _LIST_OF_OBJECTS.match(start) else Beginning.JSON_LINES
    return Beginning.JSON_LINES if first.rstrip("\r").endswith("}") else Beginning.JSON


def wrapped(value: dict[str, object], columns: frozenset[str] = PROMPT_COLUMNS) -> str | None:
    """The key under which one object holds all rows, as {"data": [{...}, ...]}; None when it is a row itself.

    It is the object's only list of objects, and the object has none of `columns`.
    """
    if not columns.isdisjoint(value):
        return None
    lists = [key for key, item in value.items() if isinstance(item, list) and item and _are_rows(item)]
    return lists[0] if len(lists) == 1 else None


def delimiter(header: str) -> str:
    """The delimiter of a header line: the one that finds known columns, then the one that finds most."""

    def found(candidate: str) -> tuple[int, int]:
        names = fields(header, candidate)
        return len(PROMPT_COLUMNS.intersection(names)), len(names)

    return max(DELIMITERS, key=found)


def fields(header: str, candidate: str) -> list[str]:
    """A header's names, without the spaces around them; [] when it cannot be read so."""
    try:
        return [name.strip() for name in next(csv.reader([header], delimiter=candidate, strict=True), [])]
    except csv.Error:
        return []


def _are_rows(items: list[object]) -> bool:
    # Messages are no rows: {"dialogue": [{"role": ...}]} is one row with a column of another name.
    return all(isinstance(item, dict) and not {"role", "from"} & item.keys() for item in items)


def _has_table_header(start: str) -> bool:
    lines = start.splitlines(keepends=True)
    names = fields(lines[0].rstrip("\r\n"), sign := delimiter(lines[0].rstrip("\r\n")))
    if len(names) < 2 or PROMPT_COLUMNS.isdisjoint(names):
        return False
    try:
        records = [record for record, _ in zip(csv.reader(lines, delimiter=sign), range(SAMPLE_RECORDS), strict=False)]
    except csv.Error:
        return False
    # The last may be cut by the head's end.
    whole = records if start.endswith(("\n", "\r")) else records[:-1]
    return len(records) > 1 and all(len(record) == len(names) for record in whole)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
