"""A chunk's answers on the way in and out: what is there already, what is kept, which rows a receipt names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftmill.dataset.completions import FOLDER, read_completions
from draftmill.dataset.journal import Key
from draftmill.dataset.schema import completions_table
from draftmill.records import Completion, Failure
from draftmill.workspace import Workspace

FAILURES_NAMED = 20
"""Failed rows a receipt names; the rest are counted."""


def find_known(space: Workspace, keys: Sequence[Key], parts: Sequence[str]) -> dict[Key, Completion]:
    """The answers to these requests that the journal or the parts have."""
    there = [part for part in parts if space.storage.exists(part)]
    # Parts first: of two completions for one request the first wins, and the journal is the tail.
    return space.journal.find(keys) | read_completions(space.storage, there, keys)


def put_completions(space: Workspace, completions: Sequence[Completion]) -> dict[str, Any] | None:
    """A reference to them as one object of the dataset, which the journal then need not upload; None for none."""
    if not completions:
        return None
    reference = space.storage.put_table(FOLDER, completions_table(completions)).model_dump()
    space.journal.mark_uploaded([completion.row.key for completion in completions])
    return reference


def named(failures: Sequence[Failure]) -> list[dict[str, str]]:
    """The first failed rows, as a receipt and a manifest name them."""
    return [
        {
            "row_key": failure.row.row_key,
            "prompt_id": failure.row.prompt_id,
            "source": failure.row.source,
            "detail": failure.words,
        }
        for failure in failures[:FAILURES_NAMED]
    ]
