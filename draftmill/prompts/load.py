"""A recipe's prompts as a stream of slices, with every row that is not a prompt beside them.

Rows come in the order of `find_files`, file by file, so that two runs over the
same files see the same slices; memory is one slice, whatever the source has. A
bad row is a `Rejection` with file and line and the loading goes on; a file that
is unreadable as a whole or row by row, one that is not what its name says, and
a source without a single prompt raise SourceError: rows that are not read must
never look like removed prompts. Other files in a folder (notes, checksums) are
left out and listed with format None.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from draftmill import plugins
from draftmill.dataset.schema import LOADED, REJECTED
from draftmill.errors import RecipeError, SourceError
from draftmill.progress import listener
from draftmill.prompts.batches import Rejects, Slices
from draftmill.prompts.files import SourceFile, find_files
from draftmill.prompts.foreign import refuse_kind
from draftmill.prompts.found import FileSummary
from draftmill.prompts.opening import head, shown
from draftmill.prompts.promise import check_format, check_size, promises_rows
from draftmill.prompts.shapes import FIELDS, PromptParts, to_prompt
from draftmill.prompts.source_row import RowFault, SourceRow
from draftmill.recipe import Prompts
from draftmill.records import Reason, Rejection

DETAIL_CHARS = 500
"""Longest reject message: a row may have a thousand columns or a role of a megabyte."""

SHOWN_REJECTS = 3
"""Rejects quoted when nothing could be loaded: enough to see what is wrong with all."""

COLUMNS_KEPT = 100
"""Columns remembered of a file: there are tables with thousands, and rows whose keys are data."""

PROGRESS_ROWS = 20_000
"""Rows between two words about how far it is: a second or two."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Prompts in source order, schema LOADED."""

    table: pa.Table


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows that are no prompts, schema REJECTED."""

    table: pa.Table


Part = Slice | Rejected | FileSummary


@dataclass(frozen=True, slots=True)
class Loaded:
    """A whole source: the prompts (LOADED), the rows that are none (REJECTED), and a line per file."""

    table: pa.Table
    rejected: pa.Table
    files: list[FileSummary]


def stream_prompts(prompts: Prompts) -> Iterator[Part]:
    """All prompts of a recipe, at most `prompts.limit`, in slices; rejected rows and files as they come.

    Raises RecipeError for a path that matches nothing and for an unknown name in
    `prompts.fields`; SourceError for an unreadable file and, at the end, when there was no prompt.
    """
    _check_fields(prompts.fields)
    files = find_files(prompts)
    loading = _Loading(prompts, alone=sum(not file.beside for file in files) == 1)
    for file in files:
        if loading.limit_reached:
            break
        yield from loading.file(file)
    yield from loading.full(rest=True)
    if not loading.slices.total:
        raise loading.nothing()


def load_prompts(prompts: Prompts) -> Loaded:
    """All of `stream_prompts` in memory: for small sources and for those who want one table."""
    parts = list(stream_prompts(prompts))
    tables = [part.table for part in parts if isinstance(part, Slice)]
    rejected = [part.table for part in parts if isinstance(part, Rejected)]
    return Loaded(
        pa.concat_tables([LOADED.empty_table(), *tables]),
        pa.concat_tables([REJECTED.empty_table(), *rejected]),
        [part for part in parts if isinstance(part, FileSummary)],
    )


class _Loading:
    """What has been read so far."""

    def __init__(self, prompts: Prompts, *, alone: bool) -> None:
        self.slices = Slices()
        self._alone = alone
        self._rejects = Rejects()
        self._first_rejects: list[Rejection] = []
        self._files = 0
        self._prompts = prompts
        names = {prompts.fields.get(name, name) for name in FIELDS}
        self._columns = frozenset(names)

    @property
    def limit_reached(self) -> bool:
        return self._prompts.limit is not None and self.slices.total >= self._prompts.limit

    def file(self, file: SourceFile) -> Iterator[Part]:
        """A file's full slices, and at its end what it was."""
        source = _writable(shown(file.path))
        if file.beside:
            yield FileSummary(source, None, {}, 0, 0, beside=True)
            return
        format_name = _format(file, self._prompts)
        self._files += 1
        if format_name is None:
            yield FileSummary(source, None, {}, 0, 0)
            return
        seen = _Seen()
        num_before, rejected_before = self.slices.total, self._rejects.total
        to_end = True
        with contextlib.closing(plugins.load("sources", format_name).read(file.path, columns=self._columns)) as rows:
            for row in rows:
                if self.limit_reached:
                    to_end = False
                    break
                seen.add(row, self._row(row, source))
                yield from self.full()
                self._tell()
        rejected = self._rejects.total - rejected_before
        num_rows = self.slices.total - num_before + rejected
        if seen.fault is not None and seen.num_unreadable == num_rows and not self._alone:
            raise _no_rows(source, num_rows, seen.fault)
        yield FileSummary(source, format_name, dict(seen.shapes), num_rows, rejected, seen.names(), to_end)

    def full(self, *, rest: bool = False) -> Iterator[Part]:
        """Slices and rejected rows that are complete, or with `rest` all there are."""
        if (table := self.slices.take(rest=rest)) is not None:
            yield Slice(table)
        if (table := self._rejects.take(rest=rest)) is not None:
            yield Rejected(table)

    def nothing(self) -> SourceError:
        """The error of a source without a prompt."""
        names = ", ".join(shown(path) for path in self._prompts.paths)
        first = "; ".join(f"{r.source}:{r.line}: {r.detail}" for r in self._first_rejects)
        return SourceError(
            "no prompt in the source; nothing was changed",
            value=f"{names}: {self._files} files, {self._rejects.total} rows"
            + (f", all rejected. First: {first}" if first else ""),
            expected="at least one row with a prompt",
            remedy="check prompts.path, prompts.format and prompts.fields; docs/prompts.md names the columns"
            " that are known",
        )

    def _row(self, row: SourceRow, source: str) -> str | None:
        """The shape of a row that is a prompt; None of one that was rejected."""
        prompt_id = _prompt_id(row, source, self._prompts.fields)
        parts = _parts(row, self._prompts)
        if isinstance(parts, RowFault):
            detail = _writable(parts.detail)[:DETAIL_CHARS]
            rejection = Rejection(Reason.PROMPT_INVALID, detail, prompt_id, source, row.line)
            self._rejects.add(rejection)
            if len(self._first_rejects) < SHOWN_REJECTS:
                self._first_rejects.append(rejection)
            return None
        self.slices.add(prompt_id, source, row.line, parts.canonical)
        return parts.shape

    def _tell(self) -> None:
        rows = self.slices.total + self._rejects.total
        if rows % PROGRESS_ROWS == 0:
            listener().wait(f"reading prompts; {rows:,} rows so far")


class _Seen:
    """What the rows of one file were; `fault`: the first that could not even be read."""

    def __init__(self) -> None:
        self.shapes: Counter[str] = Counter()
        self.num_unreadable = 0
        self.fault: SourceRow | None = None
        self._columns: dict[str, None] = {}

    def add(self, row: SourceRow, shape: str | None) -> None:
        if shape is not None:
            self.shapes[shape] += 1
        if row.value is None:
            self.num_unreadable += 1
            self.fault = self.fault or row
        elif len(self._columns) < COLUMNS_KEPT:
            self._columns.update(dict.fromkeys(row.value))

    def names(self) -> tuple[str, ...]:
        return tuple(_writable(name)[:DETAIL_CHARS] for name in list(self._columns)[:COLUMNS_KEPT])


def _parts(row: SourceRow, prompts: Prompts) -> PromptParts | RowFault:
    if row.value is None:
        return RowFault(row.fault or "not readable")
    return to_prompt(row.value, fields=prompts.fields, turns=prompts.turns)


def _format(file: SourceFile, prompts: Prompts) -> str | None:
    """The source that reads a file, None for one that is left out. Raises SourceError for what must not be."""
    beginning = head(file.path)
    said = file.format or (None if prompts.format == "auto" else prompts.format)
    if said or file.named or promises_rows(file.path):
        refuse_kind(file.path, beginning)
    check_size(file.path, beginning)
    if said:
        return said
    known = plugins.names("sources")
    found = next((name for name in known if plugins.load("sources", name).sniff(file.path, beginning)), None)
    check_format(file.path, beginning, found)
    if found is None and file.named:
        raise SourceError(
            "a prompt file of no known format",
            value=f"{shown(file.path)}, which begins with {beginning[:16]!r}",
            expected=f"one of: {', '.join(known)}",
            remedy="convert the file, or say its format with prompts.format",
        )
    return found


def _no_rows(source: str, num_rows: int, first: SourceRow) -> SourceError:
    return SourceError(
        "a prompt file of which no row can be read",
        value=f"{source}, {num_rows:,} {'row' if num_rows == 1 else 'rows'}, line {first.line}: "
        f"{_writable(first.fault or 'not readable')[:DETAIL_CHARS]}",
        expected="a file with readable rows beside the others: without them they would look like removed prompts",
        remedy="fetch or write the file again, or move it elsewhere if it is no part of the prompts",
    )


def _prompt_id(row: SourceRow, source: str, fields: dict[str, str]) -> str:
    own = row.value.get(fields.get("id", "id")) if row.value else None
    if own is None or own == "":
        return f"{source.rsplit('/', 1)[-1]}:{row.line}"
    text = own if isinstance(own, str) else json.dumps(own, ensure_ascii=False, sort_keys=True)
    return _writable(text)


def _writable(text: str) -> str:
    # Labels and messages that UTF-8 cannot hold (lone surrogates) are shown escaped; prompts are refused.
    return text.encode("utf-8", "backslashreplace").decode()


def _check_fields(fields: dict[str, str]) -> None:
    unknown: list[Any] = [name for name in fields if name not in FIELDS]
    if unknown:
        raise RecipeError(
            "prompts.fields maps a name that is not known",
            value=", ".join(unknown),
            expected=f"one of: {', '.join(FIELDS)}",
            remedy="the name on the left is draftmill's, the one on the right is the file's column",
        )
