"""What a part of an export is, in numbers that both sides must agree on: those who wrote it and those who read it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftmill.arrays import ID_DTYPE, Ids
from draftmill.exporting.counts import IdCounts
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import LossMask


@dataclass(frozen=True, slots=True)
class PartNumbers:
    """`digest`: hex SHA-256 over all rows in order, each its length (int64), ids (int32) and mask (bytes)."""

    rows: int
    ids: int
    supervised: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "ids": self.ids, "supervised": self.supervised, "digest": self.digest}


class PartTally:
    """Counts what goes by. `counts`: the supervised ids of what was `passing`."""

    def __init__(self) -> None:
        self._rows = self._ids = self._supervised = 0
        self._digest = hashlib.sha256()
        self.counts = IdCounts()

    def add(self, ids_T: Ids, mask_T: LossMask) -> None:
        """One row. Raises ValueError where the two are not of one length, or the mask is none."""
        if ids_T.shape != mask_T.shape or (len(mask_T) and int(mask_T.max()) > 1):
            raise ValueError(f"ids of shape {ids_T.shape} with a mask of shape {mask_T.shape}")
        self._rows += 1
        self._ids += len(ids_T)
        self._supervised += int(np.count_nonzero(mask_T))
        self._digest.update(np.int64(len(ids_T)).tobytes())
        self._digest.update(ids_T.astype(ID_DTYPE, copy=False).tobytes())
        self._digest.update(mask_T.astype(np.uint8, copy=False).tobytes())

    def passing(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The examples, counted, their supervised ids too."""
        for example in examples:
            self.add(example.input_ids_T, example.loss_mask_T)
            self.counts.add(example.input_ids_T[example.loss_mask_T == 1])
            yield example

    @property
    def numbers(self) -> PartNumbers:
        return PartNumbers(self._rows, self._ids, self._supervised, self._digest.hexdigest())
