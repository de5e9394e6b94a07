"""What `draftmill show` prints of a row: its columns, the loss mask's count, the places of an id, and the ids.

With an id to find only its surroundings are printed, so that a row of 30,000 ids
answers on a screen. Positions count from 0, as in `input_ids`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from draftmill.reporting.interlinear import Interlinear
from draftmill.reporting.plain_text import plain
from draftmill.reporting.row_parts import STYLES, Part

if TYPE_CHECKING:
    from draftmill.exporting.masks import Mask
    from draftmill.reporting.row_view import RowView

NAME_WIDTH = 16
"""Columns of a name before its value."""

AROUND = 12
"""Ids shown on either side of one that was looked for: about two lines."""

PLACES_SHOWN = 20
"""Positions named one by one."""


def row_lines(view: RowView, mask: Mask | None, find: int | None) -> Iterator[RenderableType]:
    """All of it, top to bottom."""
    for name, value in view.columns.items():
        if name != "messages":
            yield _field(name, plain(str(value)))
    yield _field("sealed in", f"manifest {view.manifest}")
    supervised = None if mask is None else view.supervised(mask)
    if supervised is not None:
        count = f"{sum(supervised):,} of {len(supervised):,} ids, underlined and marked ^ below"
        yield _field("loss mask", f"{mask}: {count}")
    places = [] if find is None else view.places(find)
    if find is not None:
        yield _field("found", f"id {find} {_places(places)}")
    yield _legend()
    if find is None:
        yield Interlinear(view.pieces, supervised=supervised)
    for start, end in _windows(places, len(view.pieces)):
        yield Text(f"positions {start:,} to {end - 1:,}", style="dim")
        yield Interlinear(
            view.pieces[start:end],
            marked=[place - start for place in places if start <= place < end],
            before=start > 0,
            after=end < len(view.pieces),
            supervised=supervised and supervised[start:end],
        )


def _field(name: str, value: str) -> Text:
    return Text.assemble((f"{name:<{NAME_WIDTH}}", "bold"), value)


def _legend() -> Text:
    legend = Text(f"{'input_ids':<{NAME_WIDTH}}", style="bold")
    for part in Part:
        legend.append(f" {part.value} ", style=STYLES[part])
    return legend


def _places(places: Sequence[int]) -> str:
    if not places:
        return "is not in this row"
    named = ", ".join(str(place) for place in places[:PLACES_SHOWN])
    more = f" and {len(places) - PLACES_SHOWN:,} more" if len(places) > PLACES_SHOWN else ""
    return f"at {named}{more}"


def _windows(places: Sequence[int], length: int) -> list[tuple[int, int]]:
    """[start, end) around the places; those that touch are one."""
    windows: list[tuple[int, int]] = []
    for place in places:
        start, end = max(0, place - AROUND), min(length, place + AROUND + 1)
        if windows and start <= windows[-1][1]:
            start = windows.pop()[0]
        windows.append((start, end))
    return windows
