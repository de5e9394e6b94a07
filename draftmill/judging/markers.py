"""Where the grammar's ids stand in the answers, found once and asked by every rule.

One pass over the ids puts each into its class by table, a piece at a time so
that it stays in the processor's cache; a marker of several ids is found from its
first one on. Everything after that touches markers only, which are few: the
rules' cost does not grow with the length of the answers.

A marker may have several forms (a text that merges with what stands beside it).
Where forms overlap, one is counted: the first, and of those that begin at one
place the longest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import numpy as np
import numpy.typing as npt

from draftmill.arrays import Ids
from draftmill.judging.answers import Answers, Flags, Numbers
from draftmill.judging.structure import Form, Structure, ids_at

NOWHERE = -1

PIECE_IDS = 1 << 16
"""Ids classed at once: 512 KiB of indices, which a core's own cache holds."""

Places = npt.NDArray[np.int64]
"""Sorted indices into `ids_T`."""


class IdClass(IntFlag):
    """What an id is in a structure; classes do not exclude each other."""

    END = 1
    FOREIGN = 2
    BLANK = 4
    UNKNOWN = 8
    GRAMMAR = 16
    """A marker's first id."""


@dataclass(frozen=True, slots=True)
class Hits:
    """A kind of marker's places in the outputs, in order: index of the first id, ids it covers, row."""

    at: Places
    width: Numbers
    row: Places
    num_rows: int

    @property
    def behind(self) -> Places:
        """The place behind each one's last id."""
        return self.at + self.width

    def nth(self, n: int) -> Numbers:
        """Each row's n-th place (0 = first), NOWHERE when it has fewer: [B]."""
        return self._nth(self.at, n)

    def nth_behind(self, n: int) -> Numbers:
        """The place behind each row's n-th one, NOWHERE when it has fewer: [B]."""
        return self._nth(self.behind, n)

    def _nth(self, values: Numbers, n: int) -> Numbers:
        index_B = np.searchsorted(self.row, np.arange(self.num_rows), side="left") + n
        has_B = index_B < np.searchsorted(self.row, np.arange(self.num_rows), side="right")
        value_B = np.full(self.num_rows, NOWHERE, np.int64)
        value_B[has_B] = values[index_B[has_B]]
        return value_B


@dataclass(frozen=True, slots=True)
class Markers:
    """All that the rules ask.

    `opens` to `nexts`: places in the outputs; `channel_ids`, `message_ids` and
    `nexts` (first ids of what stands before a further message) only where the
    structure has channels. `blanks`: places in prompts too. `last_id_B`: each
    row's last id, NOWHERE without output.
    """

    ends: Hits
    foreign: Hits
    unknown: Hits
    opens: Hits
    closes: Hits
    channel_ids: Hits
    message_ids: Hits
    nexts: Hits
    blanks: Places
    last_id_B: Numbers
    last_is_end_B: Flags


def find_markers(answers: Answers, structure: Structure) -> Markers:
    """Every marker of `structure` in the outputs of `answers`."""
    table = _class_table(structure)
    found, kinds = _classed(answers.ids_T, table)

    def of_class(kind: IdClass) -> Hits:
        return _hits(answers, found[(kinds & kind) > 0])

    grammar = found[(kinds & IdClass.GRAMMAR) > 0]
    channels = structure.channels
    last_id_B, last_is_end_B = _last(answers, table)
    return Markers(
        ends=of_class(IdClass.END),
        foreign=of_class(IdClass.FOREIGN),
        unknown=of_class(IdClass.UNKNOWN),
        opens=_marker_hits(answers, grammar, structure.opens),
        closes=_marker_hits(answers, grammar, structure.closes),
        channel_ids=_marker_hits(answers, grammar, ((channels.channel_id,),) if channels else ()),
        message_ids=_marker_hits(answers, grammar, ((channels.message_id,),) if channels else ()),
        nexts=_marker_hits(answers, grammar, (channels.next_ids[:1],) if channels else ()),
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


def stands_at(answers: Answers, marker: Form, at: Places, row: Places) -> Flags:
    """Whether `marker` stands at each place with all its ids before its row's end."""
    same = at + len(marker) <= answers.ends_B[row]
    for index in range(len(marker)):
        same[same] = _is_one_of(answers.ids_T[at[same] + index], ids_at(marker, index))
    return same


def cut_off_at(answers: Answers, marker: Form, at: Places, row: Places) -> Flags:
    """Whether the row's last ids, from each place on, are a beginning of `marker`: it may have come, with more ids."""
    left = answers.ends_B[row] - at
    same = np.zeros(len(at), np.bool_)
    for length in range(1, len(marker)):
        same |= (left == length) & stands_at(answers, marker[:length], at, row)
    return same


def grammar_ids(structure: Structure) -> set[int]:
    """Ids of the channels' grammar: where they may stand is its matter, so that they are foreign nowhere else."""
    channels = structure.channels
    if channels is None:
        return set()
    return {channels.channel_id, channels.message_id, channels.next_ids[0], *structure.close_ids}


def _class_table(structure: Structure) -> npt.NDArray[np.uint8]:
    # One slot more than there are ids: all that is out of range goes there.
    beyond = structure.highest_id + 1
    table = np.zeros(beyond + 1, np.uint8)
    grammar = grammar_ids(structure)
    for ids, kind in (
        (structure.end_ids, IdClass.END),
        (set(structure.foreign_ids) - grammar, IdClass.FOREIGN),
        (structure.blank_ids, IdClass.BLANK),
        (grammar.union(*(ids_at(form, 0) for form in (*structure.opens, *structure.closes))), IdClass.GRAMMAR),
    ):
        table[[index for index in ids if index <= structure.highest_id]] |= np.uint8(kind)
    table[beyond] = IdClass.UNKNOWN
    return table


def _look_up(ids: Ids, table: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    # Read as unsigned, a negative id is a very large one; what is beyond the table gets its last slot.
    return np.take(table, ids.view(np.uint32), mode="clip")


def _classed(ids_T: Ids, table: npt.NDArray[np.uint8]) -> tuple[Places, npt.NDArray[np.uint8]]:
    """The places of all ids that are in some class, and their classes."""
    found, kinds = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
    for first in range(0, len(ids_T), PIECE_IDS):
        classes = _look_up(ids_T[first : first + PIECE_IDS], table)
        places = np.flatnonzero(classes != 0)
        found.append(places + first)
        kinds.append(classes[places])
    return np.concatenate(found), np.concatenate(kinds)


def _hits(answers: Answers, at: Places, width: int = 1) -> Hits:
    """Keeps the places that lie in an output with all their `width` ids."""
    row = np.searchsorted(answers.offsets_B1, at, side="right") - 1
    inside = (at >= answers.starts_B[row]) & (at + width <= answers.ends_B[row])
    at = at[inside]
    return Hits(at, np.full(len(at), width, np.int64), row[inside], len(answers))


def _is_one_of(ids: Ids, wanted: tuple[int, ...]) -> Flags:
    return ids == wanted[0] if len(wanted) == 1 else np.isin(ids, np.array(wanted, ids.dtype))


def _marker_hits(answers: Answers, candidates: Places, forms: tuple[Form, ...]) -> Hits:
    """Where a form stands; `candidates`: places of all markers' first ids."""
    firsts = answers.ids_T[candidates]
    found = [
        _form_hits(answers, candidates[_is_one_of(firsts, ids_at(form, 0))], form) for form in dict.fromkeys(forms)
    ]
    if not found:
        return _hits(answers, np.zeros(0, np.int64))
    at = np.concatenate([hits.at for hits in found])
    width = np.concatenate([hits.width for hits in found])
    row = np.concatenate([hits.row for hits in found])
    order = np.lexsort((-width, at))
    kept = order[_apart(at[order], width[order])]
    return Hits(at[kept], width[kept], row[kept], len(answers))


def _form_hits(answers: Answers, at: Places, form: Form) -> Hits:
    hits = _hits(answers, at, len(form))
    same = stands_at(answers, form, hits.at, hits.row)
    return Hits(hits.at[same], hits.width[same], hits.row[same], hits.num_rows)


def _apart(at: Places, width: Numbers) -> Flags:
    """Of overlapping places the first; `at` is sorted, the longest of one place first."""
    overlaps = np.zeros(len(at), np.bool_)
    overlaps[1:] = at[1:] < np.maximum.accumulate(at + width)[:-1]
    kept = ~overlaps
    # One after the other, but only those that overlap: whether one counts depends on the one before it.
    behind = 0
    for index in np.flatnonzero(overlaps | np.append(overlaps[1:], np.zeros(min(1, len(at)), np.bool_))).tolist():
        kept[index] = at[index] >= behind
        behind = int(at[index] + width[index]) if kept[index] else behind
    return kept


def _last(answers: Answers, table: npt.NDArray[np.uint8]) -> tuple[Numbers, Flags]:
    last_id_B = np.full(len(answers), NOWHERE, np.int64)
    is_end_B = np.zeros(len(answers), np.bool_)
    some_B = answers.output_len_B > 0
    last = answers.ids_T[answers.ends_B[some_B] - 1]
    last_id_B[some_B] = last
    is_end_B[some_B] = (_look_up(last, table) & IdClass.END) > 0
    return last_id_B, is_end_B
