"""Train or validation: decided by what a row's conversation begins with, so that it stays where it is in every export.

Samples of a prompt share its prompt_key. Other turns of a conversation have keys of
their own and go where its first turn goes: the prompt_key of what the source has before
its first answer, made again from `messages`. Rows that do not keep them are told by
their labels, and only where all turns are asked; the first turn is then the row with the
fewest ids before the first generated one.

Nothing of the run counts, the seed neither: a row that was once trained on never
turns up in a later validation set of the same share.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pyarrow as pa

from draftmill.dataset.scan import tables
from draftmill.dataset.schema import SHARD
from draftmill.exporting.hashes import share_of
from draftmill.exporting.sources import Source
from draftmill.rendering.conversation import ASSISTANT, Conversation

COLUMNS = ("prompt_key", "variant", "messages")
"""What decides."""

KEYS = pa.schema([SHARD.field(name) for name in ("source", "prompt_id", "variant", "prompt_key", "prompt_len")])

PROMPT = ["source", "prompt_id", "variant"]
"""What the turns of one conversation have in common. Labels: after a change of the source other prompts may have the
same, which then are on one side, too."""


class Side(StrEnum):
    """A part of an export."""

    TRAIN = "train"
    VALIDATION = "validation"


class Sides:
    """Where a dataset's rows go. `share`: of the prompts that go to validation."""

    def __init__(self, share: float, source: Source) -> None:
        self._share = share
        asks_all = source.manifest.recipe["prompts"].get("turns") == "all"
        self._first_turns = _first_turns(source) if share and asks_all else {}

    def side(self, row: Mapping[str, Any]) -> Side:
        """Of a row, by its COLUMNS."""
        if not self._share:
            return Side.TRAIN
        return Side.VALIDATION if share_of("split", self._first_turn(row)) < self._share else Side.TRAIN

    def _first_turn(self, row: Mapping[str, Any]) -> str:
        """The prompt_key of its conversation's first turn."""
        own = str(row["prompt_key"])
        if row["messages"] is None:
            return self._first_turns.get(own, own)
        if f'"{ASSISTANT}"' not in row["messages"]:
            return own  # nobody has answered yet: there is one turn
        conversation = Conversation.parse(row["messages"])
        return conversation.prompt_key(0, row["variant"]) if len(conversation) else own


def _first_turns(source: Source) -> dict[str, str]:
    """The prompt_key of the first turn, by the prompt_keys of all turns of conversations with several."""
    paths = [ref.path for ref in source.manifest.shards]
    found = pa.concat_tables([KEYS.empty_table(), *tables(source.storage, paths, KEYS)])
    rows = found.to_pandas().drop_duplicates([*PROMPT, "prompt_key"])
    several = rows[rows.duplicated(PROMPT, keep=False)].sort_values("prompt_len", kind="stable")
    first = several.groupby(PROMPT, sort=False)["prompt_key"].transform("first")
    return dict(zip(several["prompt_key"], first, strict=True)) if len(several) else {}
