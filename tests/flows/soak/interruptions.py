"""Nights of a growing prompt file on a real S3 server, interrupted at random.

A night: the prompt file grows, `draftmill run` starts as a process, and at a
random event (a request to the storage or to the engine) either the run or the S3
server gets SIGKILL. The server comes back after a moment. Then the run is
recovered, sometimes interrupted again meanwhile, sometimes on another machine;
and the dataset must verify and hold exactly the rows that the recipe asks for.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import FakeServer
from draftmill.serving.s3_proxy import S3Proxy
from draftmill.serving.seaweed import SeaweedFS

GROWS_BY = (2, 8)
"""Prompts a night, at least and at most."""

EVENTS = 60
"""A whole run of a few rows makes about as many requests to storage and engine."""

AWAY_S = (0.0, 4.0)
"""How long the S3 server is down; then it takes some seconds to start."""

AGAIN = 0.3
"""Share of the recoveries that are interrupted too."""

ELSEWHERE = 0.15
"""Share of the runs that begin on a machine that knows nothing."""

QUICK = {"draftmill.workspace.PART_EVERY_S": 0.2, "draftmill.dataset.patience.LONGEST_PAUSE_S": 1.0}
"""Parts go up often, and the end of an outage is seen soon."""


@dataclass
class Nights:
    """`told`: what happened, how often."""

    mill: Any
    fake: FakeServer
    server: SeaweedFS
    proxy: S3Proxy
    start_run: Callable[..., Awaitable[Process]]
    dice: random.Random
    texts: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    machine: int = 0

    async def interrupted(self, times: int) -> None:
        """Nights until there were so many interruptions."""
        while self.told["run killed"] + self.told["server killed"] < times:
            await self.night()

    async def night(self) -> None:
        """One night, and its recovery."""
        self.texts += [f"prompt {len(self.texts) + n}" for n in range(self.dice.randint(*GROWS_BY))]
        self.mill.prompts(self.texts)
        await self._interrupted_run()
        while self.dice.random() < AGAIN:
            await self._interrupted_run()
        asked_before, began = len(self.fake.log), time.monotonic()
        status = await (await self._run()).wait()
        assert status == 0, self._words()
        self.told["nights"] += 1
        self.told["seconds of recoveries"] += round(time.monotonic() - began)
        self.told["requests of recoveries"] += len(self.fake.log) - asked_before
        await asyncio.to_thread(self._check)

    async def _interrupted_run(self) -> None:
        """A run that is interrupted at random events, until it is killed or over."""
        process = await self._run()
        while await self._reaches_an_event(process):
            if self.dice.random() < 0.5:
                process.kill()
                await process.wait()
                self.told["run killed"] += 1
                return
            await self._kill_server()
            self.told["server killed"] += 1
        # Whatever it ends with after a server's kill, the next run puts it right.
        self.told[f"interrupted run ended with {process.returncode}"] += 1

    async def _reaches_an_event(self, process: Process) -> bool:
        """Whether it came to a random number of requests from now on; else it is over."""
        at = self._events() + self.dice.randint(0, EVENTS)
        while self._events() < at and process.returncode is None:
            await asyncio.sleep(0.002)
        return process.returncode is None

    async def _kill_server(self) -> None:
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(self.dice.uniform(*AWAY_S))
        await asyncio.to_thread(self.server.start)

    async def _run(self) -> Process:
        if self.dice.random() < ELSEWHERE:
            self.machine += 1
            self.told["begun on another machine"] += 1
        environment = os.environ | {"DRAFTMILL_STATE": str(self.mill.folder / f"machine-{self.machine}")}
        self.told["runs"] += 1
        recipe = self.mill.recipe_file(chunk_rows=3, engine__in_flight=2, engine__wait_s=60)
        return await self.start_run(recipe, constants=QUICK, environment=environment)

    def _events(self) -> int:
        return len(self.proxy.log) + len(self.fake.log)

    def _check(self) -> None:
        rows = self.mill.rows()
        assert sorted(row["prompt_id"] for row in rows) == sorted(self.texts)
        assert len({row["row_key"] for row in rows}) == len(rows)
        assert self.mill.rows("quarantine") == []
        found = verify(open_storage(self.mill.dataset))
        assert (found.ok, found.rows) == (True, len(self.texts)), found.faults

    def _words(self) -> str:
        return (self.mill.folder / "recipe.err").read_text()


async def interrupted_nights(
    mill: Any,
    fake_server: Callable[..., FakeServer],
    start_run: Callable[..., Awaitable[Process]],
    s3_environment: Callable[[dict[str, str]], None],
    tmp_path: Path,
    *,
    times: int,
    seed: int,
) -> dict[str, int]:
    """What happened, how often."""
    began = time.monotonic()
    with SeaweedFS(tmp_path / "s3") as server, S3Proxy(server) as proxy:
        s3_environment(proxy.environment)
        mill.place = server.make_bucket("nights") + "/kimi"
        async with fake_server(slots=2) as fake:
            mill.url = fake.url
            nights = Nights(mill, fake, server, proxy, start_run, random.Random(seed))
            await nights.interrupted(times)
            asked = Counter(tuple(entry.input_ids or ()) for entry in fake.log)
            del asked[tuple(fake.log[0].input_ids or ())]  # the canary
    told = dict(sorted(nights.told.items()))
    return told | {
        "rows": len(nights.texts),
        "rows asked more than once": sum(number > 1 for number in asked.values()),
        "seconds": round(time.monotonic() - began),
    }
