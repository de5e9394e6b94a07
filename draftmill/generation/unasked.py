"""A pool that asks nothing: rows that others were to ask come back as they were left.

What a fan-out's partitions finished is in the dataset; a chunk that is taken up
from there goes its usual way, and a row of it that is not there is failed, with
the words a partition heard, or pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from draftmill.generation.pool import Pool
from draftmill.generation.tickets import Asked
from draftmill.records import Answer, Failure, Row


class Unasked(Pool):
    """`failed`: by row_key, the last words heard of rows that were asked elsewhere, and got no answer."""

    def __init__(self, *arguments: Any, failed: Mapping[str, str], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._failed = failed

    def opened(self, chunk: int, num_rows: int) -> AbstractAsyncContextManager[None]:
        """At once: nothing of it will be sent."""
        return super().opened(chunk, 0)

    async def ask(
        self, rows: list[Row], *, chunk: int, priors: Mapping[tuple[str, int], Answer] | None = None
    ) -> Asked:
        """All of them, failed or pending."""
        asked = Asked()
        for row in rows:
            self._leave(row, asked)
        return asked

    def expect(self, chunk: int, num_rows: int) -> None:
        """Nothing is sent, so nobody waits for it."""

    async def ask_one(self, row: Row, *, chunk: int, expected: bool) -> Asked:
        """As `ask`."""
        return await self.ask([row], chunk=chunk)

    def _leave(self, row: Row, asked: Asked) -> None:
        # An earlier turn fails the row that holds it.
        if (words := self._failed.get(row.whole or row.row_key)) is None:
            asked.pending.append(row)
        else:
            asked.failures.append(Failure(row, words, 1))
