"""The loss mask: which ids of a row a trainer learns from.

Unshifted: 1 on an id says that the drafter is to predict it. Every mask covers
ids that the model generated, the id that ends a turn among them, never the
prompt's. Trainers disagree on the rest, so it is chosen at export (docs/dataset.md has
the boundaries that stay in the rows):

- `completion`: every generated span;
- `reasoning`: of each span the ids up to and with the marker that closes the
  reasoning, and those of an answer that ended inside it;
- `content`: what is behind that marker. The whole span where the prompt closed
  the reasoning or there is none.

So reasoning and content are apart, and together they are the completion. What was cut
by its length without the end of a reasoning counts as reasoning where there is one by
the present structure, as in the manifest's statistics: with one block, an answer that
begins otherwise is no good row; with channels, one that went straight to its content is
taken for reasoning, since only a reading of all its headers would tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from draftmill.records import Thinking

Interval = tuple[int, int]
"""[start, end): positions in a row's input_ids."""

LossMask = npt.NDArray[np.uint8]
"""0 or 1 for each id of a row."""

OPENED = frozenset({Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL})
"""Where an answer without the end of its reasoning may have ended inside it."""


class Mask(StrEnum):
    """What a trainer is to learn from."""

    COMPLETION = "completion"
    CONTENT = "content"
    REASONING = "reasoning"


def supervised(spans: Iterable[Mapping[str, Any]], mask: Mask, thinking: Thinking) -> list[Interval]:
    """The supervised intervals of a row, in order; empty ones are left out.

    `spans`: as the column of that name holds them; `thinking`: of the row's variant (the manifest's structures).
    """
    parts = [_part(span["start"], span["end"], _boundary(span, thinking), mask) for span in spans]
    return [(start, end) for start, end in parts if start < end]


def loss_mask(num_ids: int, intervals: Sequence[Interval]) -> LossMask:
    """Shape (T,): 1 inside the intervals."""
    mask_T = np.zeros(num_ids, np.uint8)
    for start, end in intervals:
        mask_T[start:end] = 1
    return mask_T


def _boundary(span: Mapping[str, Any], thinking: Thinking) -> int:
    """Where a span's content begins."""
    if span["reasoning_end"] is not None:
        return int(span["reasoning_end"]) + 1
    inside = thinking in OPENED and span["finish_reason"] == "length"
    return int(span["end"] if inside else span["start"])


def _part(start: int, end: int, boundary: int, mask: Mask) -> Interval:
    match mask:
        case Mask.COMPLETION:
            return start, end
        case Mask.REASONING:
            return start, boundary
        case Mask.CONTENT:
            return boundary, end
