"""A recipe's prompts as one table, with every row that is not a prompt listed beside it.

Rows come in the order of `find_files`, file by file, so that two runs over the
same files see the same table. A bad row is a `Rejection` with file and line and
the run goes on; a file that is unreadable as a whole, a named file of no known
format, and a source without a single prompt raise SourceError: an empty source
must never look like "all prompts were removed". Other files in a folder (notes,
checksums) are left out and listed with format None.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from draftmill import identity, plugins
from draftmill.dataset.schema import LOADED
from draftmill.errors import RecipeError, SourceError
from draftmill.prompts.files import find_files, head, is_named, open_raw, shown
from draftmill.prompts.shapes import FIELDS, PromptParts, to_prompt
from draftmill.prompts.source_row import RowFault, SourceRow
from draftmill.recipe import Prompts
from draftmill.records import Reason, Rejection

BATCH_ROWS = 8192
"""Rows held as Python objects before they become an Arrow batch."""

READ_BYTES = 2**20
"""Bytes hashed at a time."""

DETAIL_CHARS = 500
"""Longest reject message: a row may have a thousand columns or a role of a megabyte."""

SHOWN_REJECTS = 3
"""Rejects quoted when nothing could be loaded: enough to see what is wrong with all."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one file gave. `format` None: of no known format, left out. `rows` = prompts + rejected."""

    path: str
    format: str | None
    shapes: dict[str, int]
    rows: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The prompts (`table`, schema LOADED), the rows that are none, and a line per file."""

    table: pa.Table
    rejected: list[Rejection]
    files: list[FileSummary]


def load_prompts(prompts: Prompts) -> Loaded:
    """All prompts of a recipe, at most `prompts.limit`.

    Raises RecipeError for a path that matches nothing and for an unknown name in
    `prompts.fields`; SourceError for an unreadable file and when no prompt is left.
    """
    _check_fields(prompts.fields)
    table = _Table()
    rejected: list[Rejection] = []
    files: list[FileSummary] = []
    paths = find_files(prompts.paths)
    for path in paths:
        if prompts.limit is not None and table.rows >= prompts.limit:
            break
        files.append(_load_file(path, prompts, table, rejected))
    if not table.rows:
        raise _nothing(prompts, files, rejected)
    return Loaded(table.finish(), rejected, files)


def source_digest(prompts: Prompts) -> str:
    """Hex SHA-256 of the files' names and bytes and of the recipe's prompt keys: equal digest, equal table."""
    files = [[shown(path), _file_digest(path)] for path in find_files(prompts.paths)]
    keys = prompts.model_dump(mode="json", exclude={"path"})
    return identity.digest({"files": files, "prompts": keys})


class _Table:
    """Prompts on their way into Arrow, in batches so that few are Python objects at a time."""

    def __init__(self) -> None:
        self.rows = 0
        self._pending: list[tuple[str, str, int, str]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, prompt_id: str, source: str, line: int, canonical: str) -> None:
        self.rows += 1
        self._pending.append((prompt_id, source, line, canonical))
        if len(self._pending) >= BATCH_ROWS:
            self._flush()

    def finish(self) -> pa.Table:
        self._flush()
        return pa.Table.from_batches(self._batches, schema=LOADED)

    def _flush(self) -> None:
        if self._pending:
            columns = [pa.array(c, f.type) for c, f in zip(zip(*self._pending, strict=True), LOADED, strict=True)]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=LOADED))
            self._pending = []


def _load_file(path: str, prompts: Prompts, table: _Table, rejected: list[Rejection]) -> FileSummary:
    source = shown(path)
    format_name = _format(path, prompts)
    if format_name is None:
        return FileSummary(source, None, {}, 0, 0)
    shapes: Counter[str] = Counter()
    before = len(rejected)
    for row in _rows(path, format_name):
        prompt_id = _prompt_id(row, source, prompts.fields)
        parts = _parts(row, prompts.fields)
        if isinstance(parts, RowFault):
            detail = _writable(parts.detail)[:DETAIL_CHARS]
            rejected.append(Rejection(Reason.PROMPT_INVALID, detail, prompt_id, source, row.line))
            continue
        shapes[parts.shape] += 1
        table.add(prompt_id, source, row.line, parts.canonical)
        if table.rows == prompts.limit:
            break
    bad = len(rejected) - before
    return FileSummary(source, format_name, dict(shapes), shapes.total() + bad, bad)


def _parts(row: SourceRow, fields: dict[str, str]) -> PromptParts | RowFault:
    if row.value is None:
        return RowFault(row.fault or "not readable")
    return to_prompt(row.value, fields=fields)


def _rows(path: str, format_name: str) -> Iterator[SourceRow]:
    rows: Iterator[SourceRow] = plugins.load("sources", format_name).read(path)
    return rows


def _format(path: str, prompts: Prompts) -> str | None:
    if prompts.format != "auto":
        return prompts.format
    beginning = head(path)
    known = plugins.names("sources")
    found = next((name for name in known if plugins.load("sources", name).sniff(path, beginning)), None)
    if found is None and is_named(path, prompts.paths):
        raise SourceError(
            "a prompt file of no known format",
            value=f"{shown(path)}, which begins with {beginning[:16]!r}",
            expected=f"one of: {', '.join(known)}",
            remedy="convert the file, or say its format with prompts.format",
        )
    return found


def _prompt_id(row: SourceRow, source: str, fields: dict[str, str]) -> str:
    own = row.value.get(fields.get("id", "id")) if row.value else None
    if own is None or own == "":
        return f"{source.rsplit('/', 1)[-1]}:{row.line}"
    text = own if isinstance(own, str) else json.dumps(own, ensure_ascii=False, sort_keys=True)
    return _writable(text)


def _writable(text: str) -> str:
    # Labels and messages that UTF-8 cannot hold (lone surrogates) are shown escaped; prompts are refused.
    return text.encode("utf-8", "backslashreplace").decode()


def _file_digest(path: str) -> str:
    sha = hashlib.sha256()
    with open_raw(path) as raw:
        while block := raw.read(READ_BYTES):
            sha.update(block)
    return sha.hexdigest()


def _check_fields(fields: dict[str, str]) -> None:
    unknown: list[Any] = [name for name in fields if name not in FIELDS]
    if unknown:
        raise RecipeError(
            "prompts.fields maps a name that is not known",
            value=", ".join(unknown),
            expected=f"one of: {', '.join(FIELDS)}",
            remedy="the name on the left is draftmill's, the one on the right is the file's column",
        )


def _nothing(prompts: Prompts, files: list[FileSummary], rejected: list[Rejection]) -> SourceError:
    names = ", ".join(shown(path) for path in prompts.paths)
    rows = sum(file.rows for file in files)
    first = "; ".join(f"{r.source}:{r.line}: {r.detail}" for r in rejected[:SHOWN_REJECTS])
    return SourceError(
        "no prompt in the source; nothing was changed",
        value=f"{names}: {len(files)} files, {rows} rows" + (f", all rejected. First: {first}" if first else ""),
        expected="at least one row with a prompt",
        remedy="check prompts.path, prompts.format and prompts.fields; docs/recipe.md names the columns that are known",
    )
