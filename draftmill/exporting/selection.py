"""Which rows a trainer gets, and how much of each: mask, length, and what is of no use to it.

Every row leaves here once: as an example, or dropped by name. What cutting or
dropping long rows costs is counted in supervised ids, reasoning and content apart,
since the long rows are the ones that reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from draftmill.arrays import Ids
from draftmill.exporting.examples import Example
from draftmill.exporting.masks import Interval, Mask, loss_mask, supervised
from draftmill.records import Span, Thinking


class Longer(StrEnum):
    """What becomes of a row longer than `max_length`."""

    CUT = "cut"  # on the right, as trainers do
    DROP = "drop"


class Drafter(StrEnum):
    """Whose trainer reads it, where that decides which rows are of use."""

    EAGLE3 = "eagle3"
    DFLASH = "dflash"  # learns blocks: a row needs two supervised ids in a row


class Dropped(StrEnum):
    """Why a row is no example."""

    TOO_LONG = "too_long"
    NOTHING_SUPERVISED = "nothing_supervised"
    NO_SUPERVISED_PAIR = "no_supervised_pair"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for. `max_length`: ids of a row, None for any number."""

    mask: Mask = Mask.COMPLETION
    max_length: int | None = None
    longer: Longer = Longer.CUT
    drafter: Drafter = Drafter.EAGLE3


@dataclass(slots=True)
class Losses:
    """What did not come along: rows by reason, rows cut, supervised ids of cut and too long rows."""

    dropped: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    reasoning: int = 0
    content: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "dropped": {reason.value: self.dropped[reason] for reason in Dropped},
            "cut_rows": self.cut,
            "lost_supervised": {"reasoning": self.reasoning, "content": self.content},
        }


def total(parts: Iterable[Losses]) -> Losses:
    """Of several parts together."""
    found = Losses()
    for part in parts:
        found.dropped += part.dropped
        found.cut += part.cut
        found.reasoning += part.reasoning
        found.content += part.content
    return found


class Selection:
    """Rows in, examples out; `losses` counts the rest."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self.losses = Losses()

    def example(self, row: Mapping[str, Any], input_ids_T: Ids, thinking: Thinking) -> Example | None:
        """The row (SHARD's columns but for the ids) as an example; None where it is dropped."""
        length = len(input_ids_T)
        kept = self._kept(row, length, thinking)
        if kept is None:
            return None
        intervals = cut_intervals(supervised(row["spans"], self._wish.mask, thinking), kept)
        if not intervals:
            self.losses.dropped[Dropped.NOTHING_SUPERVISED] += 1
            return None
        if self._wish.drafter is Drafter.DFLASH and max(end - start for start, end in intervals) < 2:
            self.losses.dropped[Dropped.NO_SUPERVISED_PAIR] += 1
            return None
        end = row["reasoning_end"]
        return Example(
            row_key=row["row_key"],
            prompt_id=row["prompt_id"],
            input_ids_T=input_ids_T[:kept],
            loss_mask_T=loss_mask(kept, intervals),
            prompt_len=min(row["prompt_len"], kept),
            reasoning_end=end if end is not None and end < kept else None,
            spans=tuple(cut_span(Span(**span), kept) for span in row["spans"] if span["start"] < kept),
        )

    def _kept(self, row: Mapping[str, Any], length: int, thinking: Thinking) -> int | None:
        """How many ids of the row stay; None where it is too long to stay at all."""
        most = self._wish.max_length
        if most is None or length <= most:
            return length
        drops = self._wish.longer is Longer.DROP
        self._lose(row, 0 if drops else most, thinking)
        if drops:
            self.losses.dropped[Dropped.TOO_LONG] += 1
            return None
        self.losses.cut += 1
        return most

    def _lose(self, row: Mapping[str, Any], kept: int, thinking: Thinking) -> None:
        if self._wish.mask is not Mask.CONTENT:
            self.losses.reasoning += _behind(supervised(row["spans"], Mask.REASONING, thinking), kept)
        if self._wish.mask is not Mask.REASONING:
            self.losses.content += _behind(supervised(row["spans"], Mask.CONTENT, thinking), kept)


def cut_intervals(intervals: Sequence[Interval], kept: int) -> list[Interval]:
    """What is left of intervals in the first `kept` ids."""
    return [(start, min(end, kept)) for start, end in intervals if start < kept]


def cut_span(span: Span, kept: int) -> Span:
    """A span that begins in the first `kept` ids, as far as it is in them: cut by length there."""
    if span.end <= kept:
        return span
    closed = span.reasoning_end is not None and span.reasoning_end < kept
    return Span(span.start, kept, span.reasoning_end if closed else None, "length", None)


def _behind(intervals: Sequence[Interval], kept: int) -> int:
    return sum(end - max(start, kept) for start, end in intervals if end > kept)
