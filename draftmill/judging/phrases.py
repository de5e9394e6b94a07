"""Loops with something new in every round: a counter, between phrases said many times.

"Step 17: let me check ... Step 18: let me check ..." has no cycle. It is told by
phrases, that is by n-grams: a **phrase** is 16 ids in a row, at least 13 of them
different, that stand eight times or more in the answer's last 2,048 ids. An
answer has fallen into a loop when its last 2,048 ids (of a shorter one all of
it, but at least 1,024) lie in phrases by three quarters or more and hardly more
than one id is new from one round to the next.

What repeats and is meant stays clear of it by one of the four: fields of tables,
CSV, JSON and code between two values are shorter than a phrase; digits, grids,
lists of short words have too few different ids; a refrain leaves its verses
uncovered; rows of data have several values, or one of several ids. What cannot
be told apart: rows of a thousand ids whose constant part is a whole sentence and
in which only a counter changes. That is why `rules` asks only of answers that
the budget cut.

Promises: few rows pay. A count of hashed n-grams, sound for any phrase, lets
through only rows in which some n-gram stands eight times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from draftmill.arrays import Ids, Offsets
from draftmill.judging.answers import Flags, Numbers
from draftmill.judging.loops import FEWEST_REPEATS, long_ids
from draftmill.judging.markers import NOWHERE

PHRASE_IDS = 16
"""A short sentence; what stands between two values of a table or a record is mostly shorter. A power of two."""

FEWEST_DIFFERENT = 13
"""Different ids in a phrase. Sentences mostly have 13 and more; lists, whose commas come again, 12 and fewer."""

COVERED = 0.75
"""Share of the ids that lie in phrases. Loops with a counter have 0.79 and more, a ballad with its refrain 0.65."""

MOST_NEW = 1.25
"""Different ids of a round that the round before had not in their place, on average. A counter has 1.1 and less,
whether it is one id or a digit an id; rows of data with several values, or one of several ids, 1.4 and more."""

WINDOW_BOUNDS = 2
"""The window, in what a loop must cover at least: 2,048 ids, in which a phrase of 256 ids can stand eight times."""

BUCKET_BITS = 12
"""4,096 buckets for the n-grams of a row: 2,048 of them put eight into one bucket by chance once in 10^8."""

PIECE_IDS = 1 << 16
"""Ids of windows looked at at once: 512 KiB of hashes, which a core's own cache holds."""

_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
"""Odd numbers of 64 bits whose halves are odd too, one for each doubling of an n-gram."""


def repetition_starts(ids_T: Ids, starts_B: Offsets, ends_B: Offsets, *, bound: int) -> Numbers:
    """Where the window of an answer that goes in phrases begins, NOWHERE for the others: [B].

    `ids_T[starts_B[b]:ends_B[b]]` is row b's output without its end id; `bound` is the recipe's N.
    """
    found_B = np.full(len(starts_B), NOWHERE, np.int64)
    rows = np.flatnonzero(ends_B - starts_B >= long_ids(bound))
    window = WINDOW_BOUNDS * long_ids(bound)
    step = max(1, PIECE_IDS // window)
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        begins = np.maximum(starts_B[some], ends_B[some] - window)
        looping = _go_in_phrases(_windows(ids_T, begins, ends_B[some], window), ends_B[some] - begins)
        found_B[some[looping]] = begins[looping]
    return found_B


def _windows(ids_T: Ids, begins: Numbers, ends: Numbers, window: int) -> Ids:
    """The last `window` ids of each row; what lies before its begin is a different negative number each."""
    at = ends[:, None] + np.arange(-window, 0)
    windows: Ids = ids_T[np.maximum(at, begins[:, None])]
    if ((ends - begins) < window).any():
        windows = np.where(at < begins[:, None], np.arange(-window, 0, dtype=np.int32), windows)
    return windows


def _go_in_phrases(windows_BW: Ids, lengths_B: Numbers) -> Flags:
    looping_B = np.zeros(len(windows_BW), np.bool_)
    likely = np.flatnonzero(_may_repeat(windows_BW))
    if len(likely):
        some = windows_BW[likely]
        often, back = _stands_often(some)
        begins_phrase = often & (_different(some) >= FEWEST_DIFFERENT)
        covered = _covered(begins_phrase).sum(axis=1) >= COVERED * lengths_B[likely]
        likely = likely[covered]
        looping_B[likely] = new_in_a_round(some[covered], np.where(begins_phrase, back, 0)[covered]) <= MOST_NEW
    return looping_B


def new_in_a_round(windows_BW: Ids, back: Numbers) -> npt.NDArray[np.float64]:
    """How many different ids a round has, on average, that the round before it had not in their place: [B].

    `back`: how far before each place its phrase was said last; 0 for no phrase, or its first time. What stands
    between two phrases is compared as far back as the first of them.
    """
    places = np.arange(windows_BW.shape[1])
    said = np.zeros(windows_BW.shape, np.int64)
    said[:, : back.shape[1]] = np.where(back > 0, places[: back.shape[1]], 0)
    back = np.take_along_axis(back, np.maximum.accumulate(said, axis=1), axis=1)
    changed = (back > 0) & (windows_BW != np.take_along_axis(windows_BW, places - back, axis=1))
    row, at = np.nonzero(changed)
    order = np.lexsort((at, windows_BW[row, at], row))
    row, at, ids = row[order], at[order], windows_BW[row, at][order]
    # A counter said twice in a round is one new id.
    again = np.zeros(len(row), np.bool_)
    again[1:] = (row[1:] == row[:-1]) & (ids[1:] == ids[:-1]) & (np.diff(at) < back[row, at][1:])
    rounds = np.divide(1.0, back, out=np.zeros(back.shape), where=back > 0).sum(axis=1)
    return np.asarray(np.bincount(row[~again], minlength=len(windows_BW)) / np.maximum(rounds, 1.0))


def _hashes(windows_BW: Ids, kind: type[np.uint32] | type[np.uint64]) -> npt.NDArray[Any]:
    """A hash of the PHRASE_IDS ids that begin at each place, of that kind: of one id, of two, of four ..."""
    hashes: npt.NDArray[Any] = windows_BW.astype(kind)
    hashes *= kind(_ODD[0] & np.iinfo(kind).max)
    hashes ^= hashes >> kind(np.iinfo(kind).bits // 2)
    for power, odd in enumerate(_ODD):
        doubled = hashes[:, : -(1 << power)] * kind(odd & np.iinfo(kind).max)
        doubled += hashes[:, 1 << power :]
        hashes = doubled
    return hashes


def _may_repeat(windows_BW: Ids) -> Flags:
    """Rows in which some n-gram may stand FEWEST_REPEATS times: all that have one, and few others."""
    buckets = (_hashes(windows_BW, np.uint32) >> np.uint32(32 - BUCKET_BITS)).astype(np.int64)
    buckets += np.arange(len(buckets))[:, None] << BUCKET_BITS
    counts = np.bincount(buckets.ravel(), minlength=len(buckets) << BUCKET_BITS)
    return np.asarray(counts.reshape(len(buckets), -1).max(axis=1) >= FEWEST_REPEATS)


def _stands_often(windows_BW: Ids) -> tuple[Flags, Numbers]:
    """Places whose n-gram stands FEWEST_REPEATS times or more in its row; how far before each it stood (0: never)."""
    hashes = _hashes(windows_BW, np.uint64)
    place_bits = np.uint64(hashes.shape[1].bit_length())
    places = np.arange(hashes.shape[1], dtype=np.uint64)
    # One sort for all: equal hashes side by side, and the place of each in the bits that it gives up.
    keys = np.sort((hashes >> place_bits << place_bits) | places, axis=1)
    same = keys >> place_bits
    place = (keys & ((np.uint64(1) << place_bits) - np.uint64(1))).astype(np.int64)
    run = same[:, FEWEST_REPEATS - 1 :] == same[:, : -(FEWEST_REPEATS - 1)]
    often_sorted = _widened(run, FEWEST_REPEATS, same.shape[1])
    back_sorted = np.zeros(hashes.shape, np.int64)
    back_sorted[:, 1:] = np.where(same[:, 1:] == same[:, :-1], np.diff(place, axis=1), 0)
    often, back = np.zeros(hashes.shape, np.bool_), np.zeros(hashes.shape, np.int64)
    np.put_along_axis(often, place, often_sorted, 1)
    np.put_along_axis(back, place, back_sorted, 1)
    return often, back


def _different(windows_BW: Ids) -> npt.NDArray[np.int8]:
    """How many different ids the phrase that begins at each place would have."""
    num = windows_BW.shape[1] - PHRASE_IDS + 1
    distance = np.full(windows_BW.shape, PHRASE_IDS, np.int8)
    for back in range(PHRASE_IDS - 1, 0, -1):
        distance[:, back:][windows_BW[:, back:] == windows_BW[:, :-back]] = back
    different = np.zeros((len(windows_BW), num), np.int8)
    for offset in range(PHRASE_IDS):
        # New in the phrase is an id that stands last farther back than the phrase begins.
        different += distance[:, offset : offset + num] > offset
    return different


def _covered(begins_phrase: Flags) -> Flags:
    return _widened(begins_phrase, PHRASE_IDS, begins_phrase.shape[1] + PHRASE_IDS - 1)


def _widened(marked: Flags, width: int, num: int) -> Flags:
    """Each mark also on the `width - 1` places behind it: `num` places a row."""
    wide = np.zeros((len(marked), num), np.bool_)
    for offset in range(width):
        wide[:, offset : offset + marked.shape[1]] |= marked
    return wide
