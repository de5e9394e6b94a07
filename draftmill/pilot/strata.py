"""Which rows a pilot asks: of each variant, evenly over the lengths of the prompts.

A unit is what is asked as one: a row, or a conversation whose turns are asked one on
top of another. Units of a variant are sorted by prompt length and cut into strata
of equal size, and each gives the same share of its units. Within a stratum
units are taken in the order of their keys, which are hashes: as good as drawn by
lot, yet the same in every run, so a pilot that was stopped goes on with the rows it
had chosen. Pure.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

STRATA_AT_MOST = 10
"""Strata of a variant: more would leave too few units in each to see how they spread."""

UNITS_A_STRATUM = 20
"""Sampled units in a stratum, about: the spread within it is estimated from them."""

ROWS_AT_LEAST = 200
"""Rows of a pilot. At a standard deviation of 1.2 means, as reasoning models' lengths have it, the mean is
known to within 14 %, and a fault of 1 % of the rows is seen in 87 of 100 pilots."""

ROUNDS = 2
"""Times the servers' places that a pilot fills: a server is at its pace only once its first round is behind it."""

ROWS_AT_MOST = 20_000
"""Rows of a pilot: they are one chunk, in memory as a whole."""


def default_rows(num_missing: int, places: int) -> int:
    """Rows of a pilot that was not told how many. `places`: requests in flight at once, on all servers."""
    return min(num_missing, max(ROWS_AT_LEAST, ROUNDS * places), ROWS_AT_MOST)


def strata(
    variant_U: npt.NDArray[np.int64], length_U: npt.NDArray[np.int64], order_U: npt.NDArray[np.int64], *, sample: int
) -> npt.NDArray[np.int64]:
    """The stratum of each unit. `variant_U`: its number; `order_U`: its place among all by key; `sample`: units that
    will be taken."""
    stratum_U = np.zeros(len(variant_U), np.int64)
    first = 0
    for variant in np.unique(variant_U):
        units = np.flatnonzero(variant_U == variant)
        share = sample * len(units) / len(variant_U)
        cuts = int(np.clip(share // UNITS_A_STRATUM, 1, STRATA_AT_MOST))
        ranked = units[np.lexsort((order_U[units], length_U[units]))]
        stratum_U[ranked] = first + np.arange(len(units)) * cuts // len(units)
        first += cuts
    return stratum_U


def take(stratum_U: npt.NDArray[np.int64], order_U: npt.NDArray[np.int64], *, sample: int) -> npt.NDArray[np.int64]:
    """Indices of the `sample` units to ask, in the order of their keys: each stratum's share by largest remainder, and
    at least two units of each, or all it has."""
    sizes_H = np.bincount(stratum_U)
    wanted_H = sizes_H * min(sample, len(stratum_U)) / max(1, len(stratum_U))
    taken_H = np.floor(wanted_H).astype(np.int64)
    left = min(sample, len(stratum_U)) - int(taken_H.sum())
    taken_H[np.argsort(taken_H - wanted_H, kind="stable")[:left]] += 1
    taken_H = np.minimum(np.maximum(taken_H, 2), sizes_H)
    by_order = np.lexsort((order_U, stratum_U))
    starts_H = np.concatenate([[0], np.cumsum(sizes_H)[:-1]])
    chosen = [by_order[start : start + number] for start, number in zip(starts_H, taken_H, strict=True)]
    units = np.concatenate([*chosen, np.zeros(0, np.int64)])
    return units[np.argsort(order_U[units], kind="stable")]


def units_for(rows: int, *, num_units: int, num_rows: int) -> int:
    """Units that come to about so many rows."""
    return min(num_units, math.ceil(rows * num_units / num_rows)) if num_rows else 0
