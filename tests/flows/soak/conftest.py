"""A fake server in a process of its own, so that it does not share the loop whose lag is measured."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

SAMPLE_S = 0.01
"""Seconds the loop is asked to sleep; what it takes longer is its lag."""


class FakeProcess:
    """`python -m draftmill.serving.fake` at `url`."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "draftmill.serving.fake", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    async def log(self, *fields: str) -> list[dict[str, Any]]:
        """The server's log, these fields of it."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/fake/log?fields={','.join(fields)}") as page:
            entries: list[dict[str, Any]] = await page.json()
            return entries

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def fake_process() -> Iterator[Callable[..., FakeProcess]]:
    with contextlib.ExitStack() as stack:

        def start(*arguments: object) -> FakeProcess:
            process = FakeProcess(*arguments)
            stack.callback(process.end)
            return process

        yield start


@pytest.fixture
async def loop_lags() -> AsyncIterator[list[tuple[float, float]]]:
    """When each sleep of 10 ms in this loop began (seconds since the epoch), and how many seconds late it woke."""
    lags: list[tuple[float, float]] = []

    async def sample() -> None:
        while True:
            began, asked_s = time.time(), time.perf_counter()
            await asyncio.sleep(SAMPLE_S)
            lags.append((began, time.perf_counter() - asked_s - SAMPLE_S))

    task = asyncio.create_task(sample())
    yield lags
    task.cancel()


@pytest.fixture
def told(record_property: Callable[[str, object], None], capsys: Any) -> Callable[..., None]:
    """Prints measured figures past pytest's capture: a soak is run for them."""

    def tell(**figures: object) -> None:
        for name, value in figures.items():
            record_property(name, value)
        with capsys.disabled():
            print("\n" + "\n".join(f"  {name}: {value}" for name, value in figures.items()))

    return tell
