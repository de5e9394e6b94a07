"""A server's slots are refilled at once, across chunks and whatever the lengths: counted in steps, not in seconds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from draftmill.generation.tickets import Asked
from draftmill.records import Row
from draftmill.serving.answers import Generated
from draftmill.serving.facade import Flight
from draftmill.serving.fake import CARD, FakeServer
from draftmill.serving.fake_answers import LogNormal

Rows = Callable[..., list[Row]]


class SteppedServer(FakeServer):
    """A server whose time is counted in steps that the test makes: one id of every running request a step."""

    def __init__(self, lengths: dict[int, int], *, slots: int) -> None:
        super().__init__(card=replace(CARD, slots=slots))
        self.lengths = lengths
        self.left: dict[str, int] = {}
        self.order: list[int] = []
        self._done: dict[str, asyncio.Event] = {}

    async def generate(self, flight: Flight) -> Generated:
        rid, first = flight.request.rid, flight.request.prompt_ids[0]
        self.left[rid], self._done[rid] = self.lengths[first], asyncio.Event()
        self.order.append(first)
        await self._done[rid].wait()
        return Generated((first, 2), {"type": "stop", "matched": 2})

    def step(self) -> int:
        """How many finished by it."""
        self.left = {rid: left - 1 for rid, left in self.left.items()}
        ended = [rid for rid, left in self.left.items() if left == 0]
        for rid in ended:
            del self.left[rid]
            self._done.pop(rid).set()
        return len(ended)


def perfect_steps(lengths: list[int], slots: int) -> int:
    """Steps of a server whose slots are refilled at once, in this order."""
    free_at = [0] * slots
    for length in lengths:
        slot = free_at.index(min(free_at))
        free_at[slot] += length
    return max(free_at)


@pytest.mark.parametrize("in_flight", [64, 96])
async def test_with_a_heavy_tail_no_slot_is_empty_while_rows_wait(
    a_run: Any, rows_of: Rows, wait_until: Any, in_flight: int
) -> None:
    slots, sizes, tail = 64, [100, 7, 193, 100, 150, 50], LogNormal(median=6, sigma=1.0)
    number = sum(sizes)
    lengths = {1000 + n: tail.length((n * 0.6180339887) % 1) for n in range(number)}
    assert max(lengths.values()) > 15 * tail.median
    async with contextlib.AsyncExitStack() as stack:
        fake = SteppedServer(lengths, slots=slots)
        await stack.enter_async_context(fake)  # its URL is known now
        run = await stack.enter_async_context(a_run(fake.url, in_flight=in_flight))

        async def chain(chunk: int, first: int, size: int) -> Asked:
            async with run.pool.opened(chunk, size):
                await asyncio.sleep(0)  # a Prefect task starts
                asked: Asked = await run.pool.ask(rows_of(size, first), chunk=chunk)
                return asked

        firsts = [0, *itertools.accumulate(sizes[:-1])]
        parts = enumerate(zip(firsts, sizes, strict=True))
        chains = [asyncio.create_task(chain(chunk, first, size)) for chunk, (first, size) in parts]
        steps = finished = 0
        while finished < number:
            full = min(slots, number - finished)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(20):
                    await wait_until(lambda full=full: len(fake.left) == full)
            assert len(fake.left) == full, f"{full - len(fake.left)} slots are empty while rows wait"
            finished, steps = finished + fake.step(), steps + 1
        results = await asyncio.gather(*chains)
    assert [len(asked.completions) for asked in results] == sizes
    assert steps == perfect_steps([lengths[first] for first in fake.order], slots)
    assert fake.order[:slots] == list(range(1000, 1000 + slots))
