"""How many rows a trip through text would have changed: their ids decoded, and the text encoded again.

What every pipeline does that stores answers as text; draftmill stores the ids, and
this is what its rows were spared. The text here is the kindest there can be: each
generated span whole, its special tokens kept. Chat APIs and templates lose more
(serving/retokenized.py). The ids found are compared and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from draftmill.arrays import Ids
from draftmill.pilot.shares import wilson
from draftmill.reporting.page.data import RoundTrip, Unmeasured
from draftmill.reporting.page.reading import ShownRow

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SAMPLED_ROWS = 2000
"""A share of 5 % is then known to within one percent."""

SAMPLED_IDS = 1_000_000
"""Of all sampled rows: a few seconds of a tokenizer's time."""

Z_95 = 1.959963984540054
"""Standard deviations of an interval of 95 %."""


def round_trip(rows: Iterable[ShownRow], tokenizer: PreTrainedTokenizerBase) -> RoundTrip | Unmeasured:
    """Of the first good rows, up to SAMPLED_ROWS and SAMPLED_IDS."""
    sampled = changed = num_ids = 0
    for row in rows:
        if sampled == SAMPLED_ROWS or num_ids + len(row.ids_T) > SAMPLED_IDS:
            break
        spans = [row.ids_T[span["start"] : span["end"]] for span in row.columns["spans"]]
        changed += any(ids_O.tolist() != again(tokenizer, ids_O) for ids_O in spans)
        sampled, num_ids = sampled + 1, num_ids + len(row.ids_T)
    if not sampled:
        return Unmeasured("the page has no good row")
    found = wilson("changed", changed, sampled, z=Z_95)
    return RoundTrip(sampled, changed, (found.low, found.high))


def again(tokenizer: PreTrainedTokenizerBase, ids_O: Ids) -> list[int]:
    """The ids of the ids' text."""
    text = str(tokenizer.decode(ids_O, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    return list(tokenizer.encode(text, add_special_tokens=False))
