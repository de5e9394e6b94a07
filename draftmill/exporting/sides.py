"""Train or validation: decided by a row's prompt alone, so that it stays where it is in every later export.

Samples of a prompt share its prompt_key. Later turns of a conversation are rows with
keys of their own where history is rewritten; they go where the first turn goes, which
is the row of the same prompt with the fewest ids before the first generated one.
Nothing of the run counts, the seed neither: a row that was once trained on never
turns up in a later validation set of the same share.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import pyarrow as pa

from draftmill.dataset.scan import tables
from draftmill.dataset.schema import SHARD
from draftmill.exporting.hashes import share_of
from draftmill.exporting.sources import Source

KEYS = pa.schema([SHARD.field(name) for name in ("source", "prompt_id", "variant", "prompt_key", "prompt_len")])

PROMPT = ["source", "prompt_id", "variant"]
"""What the turns of one conversation have in common."""


class Side(StrEnum):
    """A part of an export."""

    TRAIN = "train"
    VALIDATION = "validation"


class Sides:
    """Where a prompt goes. `share`: of the prompts that go to validation."""

    def __init__(self, share: float, sources: Iterable[Source]) -> None:
        self._share = share
        self._first_turns: dict[str, str] = {}
        if share:
            for source in sources:
                self._first_turns |= _first_turns(source)

    def side(self, prompt_key: str) -> Side:
        """Of a row with this prompt_key."""
        first = self._first_turns.get(prompt_key, prompt_key)
        return Side.VALIDATION if share_of("split", first) < self._share else Side.TRAIN


def _first_turns(source: Source) -> dict[str, str]:
    """The prompt_key of the first turn, by the prompt_keys of later ones."""
    paths = [ref.path for ref in source.manifest.shards]
    found = pa.concat_tables([KEYS.empty_table(), *tables(source.storage, paths, KEYS)])
    rows = found.to_pandas().drop_duplicates([*PROMPT, "prompt_key"])
    several = rows[rows.duplicated(PROMPT, keep=False)].sort_values("prompt_len", kind="stable")
    first = several.groupby(PROMPT, sort=False)["prompt_key"].transform("first")
    return dict(zip(several["prompt_key"], first, strict=True)) if len(several) else {}
