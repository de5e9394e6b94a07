"""Chunks are opened in order, and before the servers run out of rows."""

from __future__ import annotations

import asyncio

from draftmill.generation.turns import Turns


async def opened(turns: Turns, number: int, num_rows: int, log: list[int], leave: asyncio.Event) -> None:
    async with turns.opened(number, num_rows):
        log.append(number)
        await leave.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_opens_when_few_enough_rows_are_unsent() -> None:
    turns, log, leave = Turns(2), [], asyncio.Event()
    chains = [asyncio.create_task(opened(turns, number, 3, log, leave)) for number in (1, 2, 3)]
    await settle()
    assert log == [1]
    turns.sent(1)
    await settle()
    assert log == [1]  # two unsent: as many as the budget
    turns.sent(1)
    await settle()
    assert log == [1, 2]
    turns.asks(2, 0)  # all of its rows turn out to be there already
    await settle()
    assert log == [1, 2, 3]
    leave.set()
    await asyncio.gather(*chains)


async def test_a_chunk_that_leaves_makes_room_whatever_it_sent() -> None:
    turns, log, first, second = Turns(1), [], asyncio.Event(), asyncio.Event()
    chains = [
        asyncio.create_task(opened(turns, 1, 9, log, first)),
        asyncio.create_task(opened(turns, 2, 9, log, second)),
    ]
    await settle()
    assert log == [1]
    first.set()
    await settle()
    assert log == [1, 2]
    second.set()
    await asyncio.gather(*chains)


async def test_at_the_end_nobody_waits() -> None:
    turns, log, leave = Turns(1), [], asyncio.Event()
    chains = [asyncio.create_task(opened(turns, number, 9, log, leave)) for number in (1, 2, 3)]
    await settle()
    turns.end()
    await settle()
    assert log == [1, 2, 3]
    leave.set()
    await asyncio.gather(*chains)


async def test_a_row_that_became_possible_is_one_more_to_send() -> None:
    turns, log, leave = Turns(1), [], asyncio.Event()
    chains = [asyncio.create_task(opened(turns, number, 1, log, leave)) for number in (1, 2)]
    await settle()
    turns.asks_more(1)
    turns.sent(1)
    await settle()
    assert log == [1]  # the second turn of what was sent waits for a server
    turns.sent(1)
    turns.asks_more(7)  # a chunk that has left
    await settle()
    assert log == [1, 2]
    leave.set()
    await asyncio.gather(*chains)
