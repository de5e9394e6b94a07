"""What a source turned out to be: format, columns, shapes and rows, by file and in all.

A person reads it before anything is rendered, so that a wrong guess is seen
before it costs a night. Bounded however many files there are: the first
SHOWN_FILES one by one, and up to NAMED_FAULTS of those that gave no prompt or
were left out in spite of their name; the rest as sums. JSON both ways: it lies in the
receipt of `load`, and a run that finds that in its cache says the same lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from draftmill.prompts.promise import promises_rows

SHOWN_FILES = 10
"""Files told one by one: a screen, not a scroll."""

NAMED_FAULTS = 50
"""Files told beyond those because of what is wrong with them: who looks for one of a thousand parts must find it."""

SHOWN_COLUMNS = 12
"""Columns named a file; the rest are counted."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one file gave. `format` None: left out, of no known format or `beside` the rows of a saved folder.

    `rows` = prompts + rejected.
    `columns`: names found, in order; those of the first COLUMNS_KEPT. `read_to_end`: not when `prompts.limit` was
    reached inside the file.
    """

    path: str
    format: str | None
    shapes: dict[str, int]
    rows: int
    rejected: int
    columns: tuple[str, ...] = ()
    read_to_end: bool = True
    beside: bool = False

    @property
    def only_rejects(self) -> bool:
        return 0 < self.rows == self.rejected


class Found:
    """The sums over all files, the first of them, and those with a fault."""

    def __init__(self) -> None:
        self._files: list[FileSummary] = []
        self._only_rejects: list[FileSummary] = []
        self._left_out = _Names()
        self._beside = _Names()
        self._num: Counter[str] = Counter()
        self._shapes: Counter[str] = Counter()

    def add(self, file: FileSummary) -> None:
        if file.format is None:
            (self._beside if file.beside else self._left_out).add(file.path)
            return
        self._num += Counter({"files": 1, "rows": file.rows, "rejected": file.rejected})
        self._shapes.update(file.shapes)
        if len(self._files) < SHOWN_FILES:
            self._files.append(file)
        elif file.only_rejects:
            self._num["only_rejects"] += 1
            if len(self._only_rejects) < NAMED_FAULTS:
                self._only_rejects.append(file)

    def to_json(self) -> dict[str, Any]:
        """`{files: [first], only_rejects: [of the others], left_out, beside: {num, names}, shapes, num: {files, rows,
        rejected, only_rejects}}`."""
        return {
            "files": [asdict(file) for file in self._files],
            "only_rejects": [asdict(file) for file in self._only_rejects],
            "left_out": self._left_out.to_json(),
            "beside": self._beside.to_json(),
            "shapes": dict(self._shapes),
            "num": {name: self._num[name] for name in ("files", "rows", "rejected", "only_rejects")},
        }


class _Names:
    """Paths of files: how many, and which to tell, those whose ending promises rows before the others."""

    def __init__(self) -> None:
        self._num = 0
        self._promising: list[str] = []
        self._others: list[str] = []

    def add(self, path: str) -> None:
        self._num += 1
        names, most = (self._promising, NAMED_FAULTS) if promises_rows(path) else (self._others, SHOWN_FILES)
        if len(names) < most:
            names.append(path)

    def to_json(self) -> dict[str, Any]:
        told = [*self._promising, *self._others[: max(0, SHOWN_FILES - len(self._promising))]]
        return {"num": self._num, "names": told}


def found_lines(found: Mapping[str, Any]) -> list[str]:
    """`Found.to_json()` in lines for a person."""
    files = [FileSummary(**file) for file in found["files"]]
    only_rejects = [FileSummary(**file) for file in found["only_rejects"]]
    num = found["num"]
    lines = [_line(file) for file in (*files, *only_rejects)]
    if (more := num["files"] - len(lines)) > 0:
        without = num["only_rejects"] - len(only_rejects)
        words = f", {without:,} of them with rejected rows only" if without else ""
        in_all = f"{_counts(num['rows'], num['rejected'])}, {_shapes(found['shapes'])}"
        lines.append(f"and {more:,} more {_files(more)}{words}; in all {in_all}")
    lines += _left_out("left out, of no known format", found["left_out"])
    lines += _left_out("left out, beside the rows of a saved folder", found["beside"])
    return lines


def _left_out(words: str, files: Mapping[str, Any]) -> list[str]:
    if not files["num"]:
        return []
    more = files["num"] - len(files["names"])
    return [f"{words}: {', '.join(files['names'])}" + (f" and {more:,} more" if more else "")]


def _line(file: FileSummary) -> str:
    columns = ", ".join(file.columns[:SHOWN_COLUMNS])
    if (more := len(file.columns) - SHOWN_COLUMNS) > 0:
        columns += f" and {more} more"
    end = "" if file.read_to_end else ", read up to prompts.limit"
    return (
        f"{file.path}: {file.format}, {_shapes(file.shapes)} (columns: {columns or 'none'}), "
        f"{_counts(file.rows, file.rejected)}{end}"
    )


def _shapes(shapes: Mapping[str, int]) -> str:
    if len(shapes) < 2:
        return f"shape {next(iter(shapes), 'none')}"
    return "shapes " + ", ".join(f"{name} {rows:,}" for name, rows in shapes.items())


def _counts(rows: int, rejected: int) -> str:
    return f"{rows:,} {'row' if rows == 1 else 'rows'}" + (f", {rejected:,} rejected" if rejected else "")


def _files(number: int) -> str:
    return "file" if number == 1 else "files"
