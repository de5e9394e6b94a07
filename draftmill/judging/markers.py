"""Where the grammar's ids stand in the answers, found once and asked by every rule.

One pass over the ids puts each into its class by table; a marker of several ids
is found from its first one on. Everything after that touches markers only, which
are few: the rules' cost does not grow with the length of the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import numpy as np
import numpy.typing as npt

from draftmill.arrays import Ids
from draftmill.judging.answers import Answers, Flags, Numbers
from draftmill.judging.structure import Structure

NOWHERE = -1

Places = npt.NDArray[np.int64]
"""Sorted indices into `ids_T`."""


class IdClass(IntFlag):
    """What an id is in a structure; classes do not exclude each other."""

    END = 1
    FOREIGN = 2
    BLANK = 4
    UNKNOWN = 8


@dataclass(frozen=True, slots=True)
class Hits:
    """A kind of marker's places in the outputs: `at` (indices into `ids_T`) and `row` of each, both sorted."""

    at: Places
    row: Places
    num_rows: int

    def nth(self, n: int) -> Numbers:
        """Each row's n-th place (0 = first), NOWHERE when it has fewer: [B]."""
        first_B = np.searchsorted(self.row, np.arange(self.num_rows), side="left") + n
        place_B = np.full(self.num_rows, NOWHERE, np.int64)
        has_B = first_B < np.searchsorted(self.row, np.arange(self.num_rows), side="right")
        place_B[has_B] = self.at[first_B[has_B]]
        return place_B


@dataclass(frozen=True, slots=True)
class Markers:
    """All that the rules ask: places of each kind (`blanks` in prompts too), and each row's last id."""

    ends: Hits
    foreign: Hits
    unknown: Hits
    opens: Hits
    closes: Hits
    blanks: Places
    last_id_B: Numbers
    last_is_end_B: Flags


def find_markers(answers: Answers, structure: Structure) -> Markers:
    """Every marker of `structure` in the outputs of `answers`."""
    classes_T = _classes(answers.ids_T, structure)
    last_id_B, last_is_end_B = _last(answers, classes_T)
    found = np.flatnonzero(classes_T)
    kinds = classes_T[found]
    return Markers(
        ends=_hits(answers, found[(kinds & IdClass.END) > 0]),
        foreign=_hits(answers, found[(kinds & IdClass.FOREIGN) > 0]),
        unknown=_hits(answers, found[(kinds & IdClass.UNKNOWN) > 0]),
        opens=_marker_hits(answers, structure.open_ids),
        closes=_marker_hits(answers, structure.close_ids),
        blanks=found[(kinds & IdClass.BLANK) > 0],
        last_id_B=last_id_B,
        last_is_end_B=last_is_end_B,
    )


def first_not_blank(blanks: Places, start_B: Numbers) -> Numbers:
    """The first place at or behind `start_B` that is not in `blanks`; it may lie in a later row, or behind all ids."""
    if not len(blanks):
        return start_B
    last_of_run = np.append(np.flatnonzero(np.diff(blanks) != 1), len(blanks) - 1)
    index_B = np.minimum(np.searchsorted(blanks, start_B), len(blanks) - 1)
    run_end_B = blanks[last_of_run[np.searchsorted(last_of_run, index_B)]] + 1
    return np.where(blanks[index_B] == start_B, run_end_B, start_B)


def _classes(ids_T: Ids, structure: Structure) -> npt.NDArray[np.uint8]:
    # One slot more than there are ids: all that is out of range goes there.
    beyond = structure.highest_id + 1
    table = np.zeros(beyond + 1, np.uint8)
    for ids, kind in (
        (structure.end_ids, IdClass.END),
        (structure.foreign_ids, IdClass.FOREIGN),
        (structure.blank_ids, IdClass.BLANK),
    ):
        table[[index for index in ids if index <= structure.highest_id]] |= np.uint8(kind)
    table[beyond] = IdClass.UNKNOWN
    # Read as unsigned, a negative id is a very large one.
    return table[np.minimum(ids_T.view(np.uint32), np.uint32(beyond))]


def _hits(answers: Answers, at: Places, width: int = 1) -> Hits:
    """Keeps the places that lie in an output with all their `width` ids."""
    row = np.searchsorted(answers.offsets_B1, at, side="right") - 1
    inside = (at >= answers.starts_B[row]) & (at + width <= answers.ends_B[row])
    return Hits(at[inside], row[inside], len(answers))


def _marker_hits(answers: Answers, marker: tuple[int, ...]) -> Hits:
    if not marker:
        return _hits(answers, np.zeros(0, np.int64))
    hits = _hits(answers, np.flatnonzero(answers.ids_T == marker[0]), len(marker))
    for index, wanted in enumerate(marker[1:], start=1):
        same = answers.ids_T[hits.at + index] == wanted
        hits = Hits(hits.at[same], hits.row[same], hits.num_rows)
    return hits


def _last(answers: Answers, classes_T: npt.NDArray[np.uint8]) -> tuple[Numbers, Flags]:
    last_id_B = np.full(len(answers), NOWHERE, np.int64)
    is_end_B = np.zeros(len(answers), np.bool_)
    some_B = answers.output_len_B > 0
    at = answers.ends_B[some_B] - 1
    last_id_B[some_B] = answers.ids_T[at]
    is_end_B[some_B] = (classes_T[at] & IdClass.END) > 0
    return last_id_B, is_end_B
