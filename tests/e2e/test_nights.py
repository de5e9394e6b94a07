"""The schedule at a shortened interval over a growing prompt file: what each night asks, seals, and refuses.

Which prompts were asked is read from the fake server's log. A night that fires while the machine is busy finds nothing
new and asks nothing, so no test here depends on how fast a run is.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from draftmill.recipe import Recipe
from draftmill.rendering.prepare import CANARY_MESSAGES
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.serving.fake import FakeServer
from draftmill.serving.faults import Fault
from draftmill.serving.protocol import GenerateRequest
from tests.e2e.conftest import RUN_S, Stack
from tests.mill import Mill

EVERY_S = 6
"""Seconds between two nights."""

FROZEN_S = 300.0
"""Seconds a frozen engine's health page waits: longer than any test."""

SHORT_NIGHT = "15s"
"""Time to begin and to ask; 5 s of it are for sealing."""

CANARY = CANARY_MESSAGES[0]["content"]


@functools.cache
def _tokenizer() -> Any:
    return load_tokenizer(Recipe.model_validate(Mill(Path()).data()).model)


def prompt_of(ids: list[int]) -> str:
    """The prompt as its user wrote it, for these tests' one line."""
    text: str = _tokenizer().decode(ids)
    return text.split("<|im_start|>user\n")[1].split("<|im_end|>")[0]


def asked(fake: FakeServer) -> Counter[str]:
    """How often each prompt was asked, without the gate's canary."""
    prompts = (prompt_of(entry.input_ids) for entry in fake.log if entry.input_ids is not None)
    return Counter(prompt for prompt in prompts if prompt != CANARY)


def prompts(number: int) -> list[str]:
    return [f"prompt {n}" for n in range(number)]


@dataclass
class Nights:
    """The deployment `refresh` with one schedule. What waits is a coroutine: the fake server needs the loop."""

    stack: Stack
    mill: Mill
    path: str

    async def schedule(self, **parameters: Any) -> None:
        """Nights begin now, in place of any schedule there was."""
        await self.end()
        schedule = {"schedule": {"interval": EVERY_S}, "parameters": {"recipe": self.mill.data(), **parameters}}
        await asyncio.to_thread(self.stack.server.ask, "POST", self.path, [schedule])

    async def end(self) -> None:
        for each in await asyncio.to_thread(self.stack.server.ask, "GET", self.path):
            await asyncio.to_thread(self.stack.server.ask, "DELETE", f"{self.path}/{each['id']}")

    async def until(self, holds: Callable[[], Any]) -> Any:
        """What `holds` gives, once that is something."""
        deadline = time.monotonic() + RUN_S
        while not (found := await asyncio.to_thread(holds)):
            assert time.monotonic() < deadline, "the night has not come"
            await asyncio.sleep(0.2)
        return found

    async def sealed(self, version: int) -> None:
        await self.until(lambda: self.mill.manifest and self.mill.manifest.version >= version)

    def runs(self, state: str) -> list[dict[str, Any]]:
        """Those that the schedule began, in this state."""
        body = {"flow_runs": {"state": {"name": {"any_": [state]}}}, "sort": "EXPECTED_START_TIME_ASC"}
        return [run for run in self.stack.server.ask("POST", "/flow_runs/filter", body) if run["auto_scheduled"]]

    async def idle(self) -> None:
        """No night is under way or about to begin."""
        await self.end()
        await self.until(lambda: not any(self.runs(state) for state in ("Scheduled", "Late", "Pending", "Running")))


@pytest.fixture(scope="module", autouse=True)
def worker(stack: Stack) -> None:
    stack.worker()


@pytest.fixture
async def nights(stack: Stack, mill: Mill) -> Any:
    found = await asyncio.to_thread(stack.server.ask, "GET", "/deployments/name/refresh/refresh")
    nights = Nights(stack, mill, f"/deployments/{found['id']}/schedules")
    yield nights
    await nights.idle()


def same_flow_deployed_again(stack: Stack) -> str:
    """A deployment beside the first, as somebody makes it who does not know of the other."""
    first = stack.server.ask("GET", "/deployments/name/refresh/refresh")
    kept = ("flow_id", "entrypoint", "path", "pull_steps", "work_pool_name", "parameter_openapi_schema")
    stack.server.ask("POST", "/deployments/", {"name": "again", **{name: first[name] for name in kept}})
    return "refresh/again"


async def test_three_nights_over_a_growing_file_and_an_overlapping_run_is_refused(nights, fake_server) -> None:
    mill, stack = nights.mill, nights.stack
    frozen = asyncio.Event()
    async with fake_server() as fake:
        mill.url = fake.url
        mill.prompts(prompts(3))
        await nights.schedule()
        await nights.sealed(1)
        assert asked(fake) == Counter(prompts(3))

        def freeze(_: int, request: GenerateRequest) -> None:
            if not frozen.is_set() and prompt_of(list(request.prompt_ids)) != CANARY:
                fake.freeze(health_s=FROZEN_S)
                frozen.set()

        fake.rule = freeze
        mill.prompts(prompts(6))
        await asyncio.wait_for(frozen.wait(), RUN_S)
        already = len(nights.runs("Cancelled"))
        await nights.until(lambda: len(nights.runs("Cancelled")) > already)
        assert nights.runs("Cancelled")[-1]["state"]["message"] == "Deployment concurrency limit reached."
        # Another deployment's limit is another: there the journal's lock refuses.
        again = await asyncio.to_thread(same_flow_deployed_again, stack)
        run = await asyncio.to_thread(stack.start, again, recipe=mill.data())
        refused = await asyncio.to_thread(stack.wait, run)
        assert refused["state"]["type"] == "FAILED"
        assert "another run of this dataset is in progress on this machine" in refused["state"]["message"]
        assert mill.manifest.version == 1
        fake.thaw()
        await nights.sealed(2)

        mill.prompts(prompts(9))
        await nights.sealed(3)
    assert asked(fake) == Counter(prompts(9)), "each prompt once: a night asks for new rows only"
    assert sorted(row["prompt_id"] for row in mill.rows()) == prompts(9)


async def test_a_night_that_is_over_keeps_what_it_has_and_the_next_takes_the_rest(nights, fake_server) -> None:
    mill = nights.mill
    mill.prompts(prompts(8))
    late = set(prompts(8)[5:])
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda _, request: Fault.HANG if prompt_of(list(request.prompt_ids)) in late else None
        await nights.schedule(until=SHORT_NIGHT)
        await nights.sealed(1)
        cut = (await nights.until(lambda: nights.runs("RowsMissing")))[0]
        assert "the time given is over" in cut["state"]["message"]
        assert {row["prompt_id"] for row in mill.rows()} == set(prompts(8)) - late
        fake.rule = None
        await nights.sealed(2)
    rest = Counter(prompt_of(entry.input_ids) for entry in fake.log if entry.fault is None) - Counter([CANARY] * 9)
    assert rest == Counter(prompts(8)), "what was answered is not asked again"
    assert sorted(row["prompt_id"] for row in mill.rows()) == prompts(8)
