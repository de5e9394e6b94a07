"""Ids over their text, as linguists print a foreign language, wrapped to the width at hand.

The ids are the row; the text under each is for people. A space is shown as a
middle dot, a control character as its escape. A place that matters stands in
brackets, and what is supervised has a line of its own below it, so that both are
seen without colours too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from draftmill.reporting.plain_text import plain
from draftmill.reporting.row_parts import STYLES, Piece

GAP = 2
"""Columns between two ids."""

SPACE = "\u00b7"
ELLIPSIS = "..."

SUPERVISED = "^"
"""Below an id that the loss mask has."""


@dataclass(frozen=True, slots=True)
class _Column:
    top: str
    bottom: str
    style: str
    supervised: bool = False

    @property
    def width(self) -> int:
        return max(cell_len(self.top), cell_len(self.bottom))


@dataclass(frozen=True, slots=True)
class Interlinear:
    """A rich renderable of pieces.

    `marked`: indexes of those in brackets; `before`, `after`: the row goes on there; `supervised`: for each piece
    whether the loss mask has it, None without a mask.
    """

    pieces: Sequence[Piece]
    marked: Collection[int] = ()
    before: bool = False
    after: bool = False
    supervised: Sequence[bool] | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for number, line in enumerate(_wrapped(self._columns(), options.max_width)):
            if number:
                yield Text()
            yield _padded((column.top, column) for column in line)
            yield _padded((column.bottom, column) for column in line)
            if self.supervised is not None:
                yield _padded((SUPERVISED * column.width * column.supervised, column) for column in line)

    def _columns(self) -> Iterator[_Column]:
        if self.before:
            yield _Column(ELLIPSIS, "", "dim")
        for index, piece in enumerate(self.pieces):
            top = f"[{piece.id}]" if index in self.marked else str(piece.id)
            on = self.supervised is not None and self.supervised[index]
            yield _Column(top, shown(piece.text or ""), STYLES[piece.part] + " underline" * on, on)
        if self.after:
            yield _Column(ELLIPSIS, "", "dim")


def shown(text: str) -> str:
    """A token's text with its spaces and control characters made visible."""
    return plain(text).replace(" ", SPACE)


def _wrapped(columns: Iterable[_Column], width: int) -> Iterator[list[_Column]]:
    line: list[_Column] = []
    used = 0
    for column in columns:
        if line and used + column.width > width:
            yield line
            line, used = [], 0
        line.append(column)
        used += column.width + GAP
    if line:
        yield line


def _padded(cells: Iterable[tuple[str, _Column]]) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for shown_text, column in cells:
        text.append(shown_text, style=column.style)
        text.append(" " * (column.width - cell_len(shown_text) + GAP))
    text.rstrip()
    return text
