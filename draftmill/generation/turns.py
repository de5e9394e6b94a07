"""Whose turn it is: chunks are opened one after another, before the servers run out of rows.

A chunk's rows count as unsent from the moment it is opened, before its Prefect
task has even started; the next one is opened when the unsent rows fall below
the budget. Opening all at once would finish the first chunk with the last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """`budget`: unsent rows that are enough, about as many as may be in flight."""

    def __init__(self, budget: int) -> None:
        self._budget = max(1, budget)
        self._unsent: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._in_order = asyncio.Lock()
        self._over = False

    @contextlib.asynccontextmanager
    async def opened(self, chunk: int, num_rows: int) -> AsyncIterator[None]:
        """A chunk's turn: waits, in the order of the calls, until few enough rows are unsent, or all turns are over."""
        async with self._in_order:
            while not self._over and sum(self._unsent.values()) >= self._budget:
                self._changed.clear()
                await self._changed.wait()
            self._unsent[chunk] = num_rows
        try:
            yield
        finally:
            self._unsent.pop(chunk, None)
            self._changed.set()

    def asks(self, chunk: int, num_rows: int) -> None:
        """An opened chunk turns out to have so many rows to send."""
        self._unsent[chunk] = num_rows
        self._changed.set()

    def asks_more(self, chunk: int) -> None:
        """An opened chunk has one more row to send: what came has made it possible."""
        if chunk in self._unsent:
            self._unsent[chunk] += 1

    def sent(self, chunk: int) -> None:
        """One row of a chunk was sent for the first time."""
        if chunk in self._unsent:
            self._unsent[chunk] -= 1
            self._changed.set()

    def end(self) -> None:
        """Nothing is sent any more: nobody need wait."""
        self._over = True
        self._changed.set()
