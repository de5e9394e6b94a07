"""Which generated turns of earlier runs a conversation may go on from, and of which weights its row then is. Pure.

A turn's completion holds all turns before it in its prompt, so what is taken is
a conversation up to there, never turns of two conversations. A turn that was cut
by a smaller budget than today's, one of other weights than the servers' and one
that stands for a conversation which ended before it are not taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from draftmill.generation.continuing import LENGTH, both_weights, same_weights
from draftmill.records import Answer, Completion, Row


class Attempts:
    """Completions by row_key, newest first. `weight_versions`: what the servers say of themselves."""

    def __init__(self, known: Iterable[Completion], weight_versions: Collection[str | None]) -> None:
        self._of: dict[str, list[Completion]] = defaultdict(list)
        for completion in sorted(known, key=lambda completion: completion.row.attempt, reverse=True):
            self._of[completion.row.row_key].append(completion)
        self._newest = {key: attempts[0].row.attempt for key, attempts in self._of.items()}
        self._weight_versions = weight_versions

    def usable(self, row: Row) -> list[Completion]:
        """The attempts of an earlier turn, from the row's own on, that it can be taken from; newest first."""
        return [known for known in self._of.get(row.row_key, ()) if self._is_usable(row, known)]

    def next_of(self, row: Row) -> int:
        """The attempt to ask an earlier turn as: a request of its own."""
        attempt = max(row.attempt, self._newest.get(row.row_key, -1) + 1)
        self._newest[row.row_key] = attempt
        return attempt

    def answer(self, completion: Completion) -> Answer:
        """Its answer, of the weight versions of all its turns: as it came it only says its last turn's."""
        earlier, spans = completion.row.earlier, completion.row.spans
        if not spans or len(spans) > len(earlier):
            return completion.answer
        before = (known for known in self._of.get(earlier[len(spans) - 1], ()) if _stands_on(completion, known))
        found = next(before, None)
        if found is None:
            return completion.answer
        return with_weights(completion, self.answer(found).weight_version).answer

    def _is_usable(self, row: Row, known: Completion) -> bool:
        if known.row.attempt < row.attempt or len(known.row.spans) != row.turn:
            return False
        if known.answer.finish_type == LENGTH and known.row.max_new_tokens < row.max_new_tokens:
            return False
        version = self.answer(known).weight_version
        versions = [version] if version is None else version.split("+")
        return same_weights(version, self._weight_versions) or all(
            same_weights(each, self._weight_versions) for each in versions
        )


def with_weights(completion: Completion, before: str | None) -> Completion:
    """A later turn with the weight versions of the turns before it in front of its own; None where one is not told."""
    own = completion.answer.weight_version
    if before is not None and own is not None and own.startswith(f"{before}+"):
        return completion
    return replace(completion, answer=replace(completion.answer, weight_version=both_weights(before, own)))


def _stands_on(completion: Completion, before: Completion) -> bool:
    """Whether a completion's prompt begins with another's prompt and answer, up to its last span's end."""
    ids, span = completion.row.prompt_ids, completion.row.spans[-1]
    prompt_ids, output_ids = before.row.prompt_ids, before.answer.output_ids
    if (len(prompt_ids), len(prompt_ids) + len(output_ids)) != (span.start, span.end):
        return False
    return np.array_equal(ids[: span.start], prompt_ids) and np.array_equal(ids[span.start : span.end], output_ids)
