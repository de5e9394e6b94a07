"""What a source turned out to be: format, columns, shapes and rows, by file and in all.

A person reads it before anything is rendered, so that a wrong guess is seen
before it costs a night. Bounded however many files there are: the first
SHOWN_FILES one by one, the rest as sums. JSON both ways: it lies in the
receipt of `load`, and a run that finds that in its cache says the same lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SHOWN_FILES = 10
"""Files told one by one: a screen, not a scroll."""

SHOWN_COLUMNS = 12
"""Columns named a file; the rest are counted."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one file gave. `format` None: of no known format, left out. `rows` = prompts + rejected.

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


class Found:
    """The sums over all files, and the first of them."""

    def __init__(self) -> None:
        self._files: list[FileSummary] = []
        self._left_out: list[str] = []
        self._num: Counter[str] = Counter()
        self._shapes: Counter[str] = Counter()

    def add(self, file: FileSummary) -> None:
        if file.format is None:
            self._num["left_out"] += 1
            if len(self._left_out) < SHOWN_FILES:
                self._left_out.append(file.path)
            return
        self._num += Counter({"files": 1, "rows": file.rows, "rejected": file.rejected})
        self._shapes.update(file.shapes)
        if len(self._files) < SHOWN_FILES:
            self._files.append(file)

    def to_json(self) -> dict[str, Any]:
        """`{files: [first], left_out: [first], shapes, num: {files, left_out, rows, rejected}}`."""
        return {
            "files": [asdict(file) for file in self._files],
            "left_out": self._left_out,
            "shapes": dict(self._shapes),
            "num": {name: self._num[name] for name in ("files", "left_out", "rows", "rejected")},
        }


def found_lines(found: Mapping[str, Any]) -> list[str]:
    """`Found.to_json()` in lines for a person."""
    files = [FileSummary(**file) for file in found["files"]]
    num = found["num"]
    lines = [_line(file) for file in files]
    if (more := num["files"] - len(files)) > 0:
        in_all = f"{_counts(num['rows'], num['rejected'])}, {_shapes(found['shapes'])}"
        lines.append(f"and {more:,} more {_files(more)}; in all {in_all}")
    if num["left_out"]:
        names = ", ".join(found["left_out"])
        more = num["left_out"] - len(found["left_out"])
        lines.append(f"left out, of no known format: {names}" + (f" and {more:,} more" if more else ""))
    return lines


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
