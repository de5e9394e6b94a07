"""A row's ids cut into prompt, markers, reasoning, content and end, for people.

By ids and boundaries alone: the spans that the row stores, and the markers of its
structure. An opening or closing marker of several ids is one only as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from draftmill.arrays import Ids
from draftmill.exporting.masks import OPENED
from draftmill.judging.structure import Structure
from draftmill.reporting.row_parts import Part

_PARTS = tuple(Part)
_CODES = {part: code for code, part in enumerate(_PARTS)}


def parts(ids: Sequence[int] | Ids, spans: Iterable[Mapping[str, Any]], structure: Structure) -> list[Part]:
    """What each id belongs to; `spans` as the column of that name holds them."""
    return [_PARTS[code] for code in _codes(ids, spans, structure)]


def part_runs(
    ids: Sequence[int] | Ids, spans: Iterable[Mapping[str, Any]], structure: Structure
) -> list[tuple[int, Part]]:
    """The same as runs of equal ones: (where it ends, part), which is how the report page holds them."""
    codes_T = _codes(ids, spans, structure)
    if not len(codes_T):
        return []
    ends = np.append(np.flatnonzero(np.diff(codes_T)) + 1, len(codes_T))
    return [(int(end), _PARTS[codes_T[end - 1]]) for end in ends]


def _codes(ids: Sequence[int] | Ids, spans: Iterable[Mapping[str, Any]], structure: Structure) -> npt.NDArray[np.int8]:
    """Shape (T,): places in Part."""
    ids_T = np.asarray(ids, np.int64)
    is_marker_T = _places(ids_T, structure.open_ids) | _places(ids_T, structure.close_ids)
    codes_T = np.full(len(ids_T), _CODES[Part.PROMPT], np.int8)
    for span in spans:
        start, end, close = span["start"], span["end"], span["reasoning_end"]
        reasons_until = end if close is None else close
        codes_T[start:end] = _CODES[Part.CONTENT]
        if structure.thinking in OPENED:
            codes_T[start:reasons_until] = _CODES[Part.REASONING]
        codes_T[start:end][is_marker_T[start:end]] = _CODES[Part.MARKER]
        if span["stop_id"] is not None and start < end:
            codes_T[end - 1] = _CODES[Part.END]
    return codes_T


def _places(ids_T: npt.NDArray[np.int64], marker: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Shape (T,): where a marker of one id or several stands."""
    found_T = np.zeros(len(ids_T), bool)
    if marker and len(marker) <= len(ids_T):
        windows = np.lib.stride_tricks.sliding_window_view(ids_T, len(marker))
        for start in np.flatnonzero((windows == np.array(marker)).all(axis=1)):
            found_T[start : start + len(marker)] = True
    return found_T
