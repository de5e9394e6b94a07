"""A row's ids cut into prompt, markers, reasoning, content and end, for people.

By ids and boundaries alone: the spans that the row stores, and the markers of its
structure. An opening or closing marker of several ids is one only as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from draftmill.exporting.masks import OPENED
from draftmill.judging.structure import Structure
from draftmill.reporting.row_parts import Part


def parts(ids: Sequence[int], spans: Iterable[Mapping[str, Any]], structure: Structure) -> list[Part]:
    """What each id belongs to; `spans` as the column of that name holds them."""
    markers = _places(ids, structure.open_ids) | _places(ids, structure.close_ids)
    found = [Part.PROMPT] * len(ids)
    for span in spans:
        for position in range(span["start"], span["end"]):
            found[position] = _part(position, span, position in markers, structure)
    return found


def runs(found: Iterable[Part]) -> list[tuple[int, Part]]:
    """Parts as runs of equal ones: (where it ends, part), which is how the report page holds them."""
    ends, end = [], 0
    for part, group in groupby(found):
        end += len(list(group))
        ends.append((end, part))
    return ends


def _part(position: int, span: Mapping[str, Any], is_marker: bool, structure: Structure) -> Part:
    """What an id of a generated span belongs to."""
    if position == span["end"] - 1 and span["stop_id"] is not None:
        return Part.END
    if is_marker:
        return Part.MARKER
    close = span["reasoning_end"]
    inside = structure.thinking in OPENED
    return Part.REASONING if inside and (close is None or position < close) else Part.CONTENT


def _places(ids: Sequence[int], marker: tuple[int, ...]) -> set[int]:
    """The positions of a marker of one id or several."""
    if not marker:
        return set()
    starts = (i for i, first in enumerate(ids) if first == marker[0] and tuple(ids[i : i + len(marker)]) == marker)
    return {start + k for start in starts for k in range(len(marker))}
