"""What the fake server was asked, row by row: which rows twice, and whether each of those had to be."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftmill.serving.fake import FakeServer, Latency, LogEntry
from tests.mill import Mill

ROWS = 32
IN_FLIGHT = 4

A_ROW = Latency(first_s=0.5)
"""A run of ROWS, IN_FLIGHT at a time, asks for 4 s: long enough to be met in the middle."""

LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""

WAIT_S = 120
"""Seconds for a moment that a test waits for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A look at a server's log, in requests for rows: the gate's canary, the first request of all, is none."""

    fake: FakeServer

    @property
    def rows(self) -> dict[tuple[int, ...], list[LogEntry]]:
        """Each row's requests in order, the row known by its prompt ids."""
        entries: dict[tuple[int, ...], list[LogEntry]] = defaultdict(list)
        for entry in self.fake.log:
            entries[tuple(entry.input_ids or ())].append(entry)
        if self.fake.log:
            del entries[tuple(self.fake.log[0].input_ids or ())]
        return entries

    @property
    def requests(self) -> list[LogEntry]:
        return [entry for entries in self.rows.values() for entry in entries]

    @property
    def finished(self) -> int:
        """Rows that were answered whole."""
        return sum(any(entry.status == 200 for entry in entries) for entries in self.rows.values())

    @property
    def in_flight(self) -> int:
        return sum(entry.ended_at is None for entry in self.requests)

    def again(self) -> list[LogEntry]:
        """The requests whose rows were asked again after them."""
        return [entry for entries in self.rows.values() for entry in entries[:-1]]

    def only_what_had_to_be(self, *ends: float) -> None:
        """Asserts that no row was asked twice but those on their way, or finished in the second before, when a run
        ended; and prints how many."""
        again = self.again()
        late = [entry for entry in again if entry.status == 200]
        print(f"{len(self.rows)} rows, {len(again)} asked twice: {len(late)} of the last second, the others in flight")
        assert not [entry for entry in late if not _lost(entry, ends)]
        assert len(again) - len(late) <= IN_FLIGHT * len(ends)

    async def until(self, moment: Callable[[Asked], bool]) -> None:
        """Waits for a moment in a run."""
        deadline = time.monotonic() + WAIT_S
        while not moment(self):
            assert time.monotonic() < deadline, f"{len(self.requests)} requests and no more"
            await asyncio.sleep(0.02)


def _lost(entry: LogEntry, ends: tuple[float, ...]) -> bool:
    """On its way when a run was ended at one of these times, or finished in the second before."""
    return any(entry.started_at <= end <= (entry.ended_at or end) + LAST_SECOND_S for end in ends)


async def run_in_the_middle(
    stack: Any, mill: Mill, fake: FakeServer, *, rows: int = ROWS, finished: int = ROWS // 3
) -> str:
    """A run of the deployment refresh, when so many of its rows are finished; its id. For the latency A_ROW."""
    mill.prompts([f"prompt {n}" for n in range(rows)])
    mill.url = fake.url
    recipe = mill.data(engine__in_flight=IN_FLIGHT, chunk_rows=rows // 4)
    run: str = stack.start("refresh/refresh", recipe=recipe)
    await Asked(fake).until(lambda asked: asked.finished >= finished)
    return run


async def until(moment: Callable[[], bool], *, wait_s: float = WAIT_S) -> None:
    """Waits for a moment of a process or a file."""
    deadline = time.monotonic() + wait_s
    while not moment():
        assert time.monotonic() < deadline, f"not in {wait_s:.0f} s"
        await asyncio.sleep(0.02)
