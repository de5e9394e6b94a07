"""Degenerate answers: the model fell into a loop and never left it.

The last N ids are one short cycle, again and again. Only the end counts: a
table, a list of digits or a code listing repeats too, but goes on. Vectorised
over rows: a window's ids are compared with themselves, shifted by each period.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from draftmill.arrays import Ids, Offsets
from draftmill.judging.answers import Flags

AUTO_BOUND = 256
"""Ids at the end that must be one cycle: eight repetitions of the longest one looked for."""

LONGEST_CYCLE = 32
"""Ids. Loops seen in practice repeat a word, a line or a short sentence."""

FEWEST_REPEATS = 8
"""A cycle said fewer times may be meant."""

WINDOW_IDS = 1 << 24
"""Ids of windows compared at once (64 MiB as int32)."""


def degenerate(ids_T: Ids, starts_B: Offsets, ends_B: Offsets, *, bound: Literal["auto", "off"] | int) -> Flags:
    """Which rows end in a loop: [B] flags. `ids_T[starts_B[b]:ends_B[b]]` is row b's output without its end id."""
    looping_B = np.zeros(len(starts_B), np.bool_)
    if bound == "off":
        return looping_B
    num_ids = window_ids(bound)
    rows = np.flatnonzero(ends_B - starts_B >= num_ids)
    step = max(1, WINDOW_IDS // num_ids)
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        looping_B[some] = _cyclic(ids_T[ends_B[some, None] + np.arange(-num_ids, 0)])
    return looping_B


def window_ids(bound: Literal["auto"] | int) -> int:
    """How many ids at the end are looked at."""
    return AUTO_BOUND if bound == "auto" else bound


def _cyclic(windows_BN: Ids) -> Flags:
    num_ids = windows_BN.shape[1]
    cyclic_B = np.zeros(len(windows_BN), np.bool_)
    for period in range(1, min(LONGEST_CYCLE, num_ids // FEWEST_REPEATS) + 1):
        cyclic_B |= (windows_BN[:, period:] == windows_BN[:, :-period]).all(axis=1)
    return cyclic_B
