"""An example: one row as a trainer reads it.

What travels from the rows of a dataset to an exporter of the shelf, and what an
exporter reads back of its files.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmill.arrays import Ids
from draftmill.exporting.masks import LossMask
from draftmill.records import Span


@dataclass(frozen=True, slots=True)
class Example:
    """Ids and mask of one row, both of shape (T,), cut to `max_length` already.

    `prompt_len`, `reasoning_end`, `spans`: the boundaries as in the dataset (docs/dataset.md), those behind a cut
    brought back to it; a span that begins behind it is gone.
    """

    row_key: str
    prompt_id: str
    input_ids_T: Ids
    loss_mask_T: LossMask
    prompt_len: int
    reasoning_end: int | None
    spans: tuple[Span, ...]
