"""Which rows a page may show, and which objects they are read from.

A row's key is a hash, so the rows with the smallest keys are a fair sample, and the
same one every time. Of a huge dataset only some objects are read, evenly spaced; the
page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.storage import ObjectRef

R = TypeVar("R", bound=ObjectRef)


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A row that may be shown; `ids`: about how many it has."""

    key: str
    attempt: int
    ids: int


class Smallest:
    """The `limit` rows with the smallest keys of all that are added."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[Candidate] = []

    def add(self, keys: pa.ChunkedArray, attempts: pa.ChunkedArray, ids: pa.ChunkedArray) -> None:
        """Rows, column by column."""
        if len(self._kept) == self._limit:
            near = pc.less_equal(keys, self._kept[-1].key)
            keys, attempts, ids = (column.filter(near) for column in (keys, attempts, ids))
        found = map(Candidate, keys.to_pylist(), attempts.to_pylist(), ids.to_pylist())
        self._kept = sorted([*self._kept, *found])[: self._limit]

    def rows(self) -> list[Candidate]:
        """By key."""
        return list(self._kept)


def spread(refs: Sequence[R], max_bytes: int) -> list[R]:
    """All objects, or evenly spaced ones of about `max_bytes` together; at least one where there is any."""
    total = sum(ref.bytes for ref in refs)
    if total <= max_bytes:
        return list(refs)
    number = max(1, len(refs) * max_bytes // total)
    return [refs[place] for place in np.linspace(0, len(refs) - 1, number).round().astype(int)]


def first_of(candidates: Sequence[Candidate], max_ids: int) -> list[Candidate]:
    """As many from the front as have `max_ids` together; a row that does not fit is passed over."""
    found, left = [], max_ids
    for each in candidates:
        if each.ids <= left:
            found.append(each)
            left -= each.ids
    return found
