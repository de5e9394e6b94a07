"""What engines share of scoring: lists of choices as arrays.

A server that scored other ids than those sent, or fewer, has not scored the row:
that is a ValueError, which the engine turns into a Fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftmill.arrays import ID_DTYPE, LOGPROB_DTYPE, MAX_ID, Ids
from draftmill.records import Scores

Choice = tuple[int, float | None]
"""An id and its log-probability; null where the server's is minus infinity, which JSON cannot say."""


def scores(ids_S: Ids, scored: Sequence[Choice], tops: Sequence[Sequence[Choice]], *, num_top: int) -> Scores:
    """`scored`: each id with its own log-probability; `tops`: the likeliest at each, in any order, of which
    `num_top` are kept.

    Raises ValueError when other ids were scored, or for values that no log-probability can be.
    """
    if [token_id for token_id, _ in scored] != ids_S.tolist() or len(tops) != len(ids_S):
        raise ValueError(f"{len(scored)} ids scored, which are not the {len(ids_S)} asked for")
    top_ids_SK = np.full((len(ids_S), num_top), -1, ID_DTYPE)
    top_logprobs_SK = np.full((len(ids_S), num_top), -np.inf, LOGPROB_DTYPE)
    for position, choices in enumerate(tops):
        best = sorted(((_logprob(value), _id(token_id)) for token_id, value in choices), key=lambda c: -c[0])[:num_top]
        if not best:
            raise ValueError(f"no likeliest ids at position {position}")
        top_logprobs_SK[position, : len(best)] = [logprob for logprob, _ in best]
        top_ids_SK[position, : len(best)] = [token_id for _, token_id in best]
    return Scores(np.array([_logprob(value) for _, value in scored], LOGPROB_DTYPE), top_ids_SK, top_logprobs_SK)


ROUNDING = 1e-3
"""Nats above 0 that a rounded log-probability of a certain id may have."""


def _logprob(value: Any) -> float:
    if value is None:
        return -np.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= ROUNDING:
        raise ValueError(f"{value!r} is no log-probability")
    return min(0.0, float(value))


def _id(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise ValueError(f"{value!r} is no id")
    return value
