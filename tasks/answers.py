"""A chunk's answers on the way in and out: what is there already, what is kept, which rows a receipt names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from draftmill.dataset.completions import FOLDER, read_completions
from draftmill.dataset.journal import Key
from draftmill.dataset.schema import completions_table
from draftmill.generation.conversations import Ended
from draftmill.records import Completion, Failure, Row
from draftmill.workspace import Workspace

FAILURES_NAMED = 20
"""Failed rows a receipt names; the rest are counted."""

CAUSES_NAMED = 20
"""Causes of an early end, or last words of failed rows, that a receipt names: some have a number that others have not,
and are nearly as many as rows."""


def find_known(
    space: Workspace, keys: Sequence[Key], parts: Sequence[str], *, turns: Collection[str] = ()
) -> dict[Key, Completion]:
    """The answers to these requests that the journal or the parts have; of the row_keys `turns` all attempts."""
    there = [part for part in parts if space.storage.exists(part)]
    # Parts first: of two completions for one request the first wins, and the journal is the tail.
    found = space.journal.find(keys) | space.journal.attempts(turns)
    return found | read_completions(space.storage, there, keys, turns=turns)


def put_completions(space: Workspace, completions: Sequence[Completion]) -> dict[str, Any] | None:
    """A reference to them as one object of the dataset, which the journal then need not upload; None for none."""
    if not completions:
        return None
    reference = space.storage.put_table(FOLDER, completions_table(completions)).model_dump()
    space.journal.mark_uploaded([completion.row.key for completion in completions])
    return reference


def ended_early(ended: Sequence[tuple[Row, Ended]] = ()) -> dict[str, Any]:
    """How many conversations have fewer turns than their source although nothing is bad, by cause; the first."""
    causes = Counter(end.words for _, end in ended)
    first = None
    if ended:
        row, end = ended[0]
        first = f"behind turn {end.turn} of {row.prompt_id} ({row.source}): {end.words}"
    return {"rows": len(ended), "causes": dict(causes.most_common(CAUSES_NAMED)), "first": first}


def failed_words(failures: Sequence[Failure]) -> dict[str, int]:
    """How many rows failed with which last words; the commonest."""
    return dict(Counter(failure.words for failure in failures).most_common(CAUSES_NAMED))


def failed_rows(failures: Sequence[Failure]) -> dict[str, str]:
    """Their last words by row_key: all of them, for who must count them without the rows."""
    return {failure.row.row_key: failure.words for failure in failures}


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
