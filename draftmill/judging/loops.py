"""Exact loops: the answer's last ids are one cycle, again and again.

Only the end counts: a table, a list of digits or a code listing repeats too, but
goes on. A **short cycle** (up to 32 ids: a word, a line, a short sentence) covers
the last N ids, at least eight times. A **long cycle** (33 to 512 ids: a paragraph
or several) covers the last 1,024 ids and at least its last four rounds; `rules`
asks for it only where the budget cut the answer. Loops with something new in
every round are `phrases`'.

Vectorised over rows: a window is compared with itself, shifted by each short
period; a long period is tried only where the last ids stand that far before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from draftmill.arrays import Ids, Offsets
from draftmill.judging.answers import Flags, Numbers
from draftmill.judging.markers import NOWHERE

AUTO_BOUND = 256
"""N of `degenerate: auto`, in ids: eight repetitions of the longest short cycle."""

SHORT_CYCLE = 32
"""Ids. The loops seen most repeat a word, a line or a short sentence."""

FEWEST_REPEATS = 8
"""A short cycle said fewer times may be meant."""

LONG_CYCLE = 512
"""Ids. About a page of a text; what repeats in larger steps may be versions of a document."""

FEWEST_ROUNDS = 4
"""Of a long cycle. Word for word, a text of several lines is said three times at most: asked for, quoted, concluded."""

LONG_BOUNDS = 4
"""Bounds (of 256 ids or more) that a loop other than a short cycle must cover: 1,024 ids or more."""

ANCHOR = 32
"""Last ids that must stand one long period before. Fewer than a long cycle has: no cycle is missed."""

WINDOW_IDS = 1 << 22
"""Ids of windows compared at once (16 MiB as int32)."""


def short_cycle_starts(ids_T: Ids, starts_B: Offsets, ends_B: Offsets, *, bound: int) -> Numbers:
    """Where the last N ids begin, of rows in which they are one short cycle; NOWHERE for the others: [B].

    `ids_T[starts_B[b]:ends_B[b]]` is row b's output without its end id; `bound` is N.
    """
    found_B = np.full(len(starts_B), NOWHERE, np.int64)
    for rows in _pieces(np.flatnonzero(ends_B - starts_B >= bound), bound):
        short = rows[_is_short_cycle(ids_T[ends_B[rows, None] + np.arange(-bound, 0)])]
        found_B[short] = ends_B[short] - bound
    return found_B


def long_cycle_starts(ids_T: Ids, starts_B: Offsets, ends_B: Offsets, *, bound: int) -> Numbers:
    """Where the looping end begins, as far as it was looked at, of rows that end in a long cycle; else NOWHERE: [B].

    Rows and `bound` as in `short_cycle_starts`.
    """
    found_B = np.full(len(starts_B), NOWHERE, np.int64)
    rows = np.flatnonzero(ends_B - starts_B >= long_ids(bound))
    for row, period in _periods_tried(ids_T, ends_B, rows):
        covered = np.maximum(long_ids(bound), FEWEST_ROUNDS * period)
        fits = covered <= ends_B[row] - starts_B[row]
        row, period, covered = row[fits], period[fits], covered[fits]
        looping = _repeats(ids_T, ends_B[row], period, covered)
        # Periods rise: written backwards, a row's shortest one stays.
        found_B[row[looping][::-1]] = (ends_B[row] - covered)[looping][::-1]
    return found_B


def long_ids(bound: int) -> int:
    """Ids at the end that a long cycle, or the same phrases, must cover."""
    return LONG_BOUNDS * max(bound, AUTO_BOUND)


def period_of(ids: Ids) -> int | None:
    """The shortest period of up to 512 ids that all of `ids` repeat with; None when there is none."""
    periods = range(1, min(LONG_CYCLE, len(ids) - 1) + 1)
    return next((period for period in periods if np.array_equal(ids[period:], ids[:-period])), None)


def _pieces(rows: Numbers, window: int) -> Iterator[Numbers]:
    step = max(1, WINDOW_IDS // window)
    return (rows[first : first + step] for first in range(0, len(rows), step))


def _is_short_cycle(windows_BN: Ids) -> Flags:
    num_ids = windows_BN.shape[1]
    cyclic_B = np.zeros(len(windows_BN), np.bool_)
    for period in range(1, min(SHORT_CYCLE, num_ids // FEWEST_REPEATS) + 1):
        cyclic_B |= (windows_BN[:, period:] == windows_BN[:, :-period]).all(axis=1)
    return cyclic_B


def _periods_tried(ids_T: Ids, ends_B: Offsets, rows: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """Rows and the long periods that their last ids allow, in order, a piece at a time."""
    shortest = SHORT_CYCLE + 1
    for some in _pieces(rows, LONG_CYCLE):
        windows = ids_T[ends_B[some, None] + np.arange(-LONG_CYCLE - ANCHOR, 0)]
        # Column c stands for the period LONG_CYCLE - c.
        allowed: npt.NDArray[np.bool_] = np.ones((len(some), LONG_CYCLE - shortest + 1), np.bool_)
        for back in range(1, ANCHOR + 1):
            before = windows[:, ANCHOR - back : ANCHOR - back + allowed.shape[1]]
            allowed &= before == windows[:, -back, None]
            if not allowed.any():
                break
        index, column = np.nonzero(allowed[:, ::-1])
        for piece in _pieces(np.arange(len(index)), FEWEST_ROUNDS * LONG_CYCLE):
            yield some[index[piece]], column[piece] + shortest


def _repeats(ids_T: Ids, ends: Numbers, period: Numbers, covered: Numbers) -> Flags:
    """Whether the last `covered` ids have that period, one pair of row and period after the other."""
    num = int((covered - period).max(initial=0))
    back = np.arange(1, num + 1)
    last = ends[:, None] - np.minimum(back, (covered - period)[:, None])
    return np.asarray((ids_T[last] == ids_T[last - period[:, None]]).all(axis=1))
