"""A pool on fake servers: small prompts, a journal that is a list, pauses a thousand times shorter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from draftmill.arrays import ids_array
from draftmill.engines import sglang
from draftmill.errors import DatasetError
from draftmill.generation import pool, retry, watch
from draftmill.generation.http import open_http
from draftmill.generation.night import NO_END, Night
from draftmill.generation.pool import Pool
from draftmill.generation.ways import ways_of
from draftmill.progress import Rows, listening
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.records import Answer, Completion, Reason, Return, Returned, Row, ServerReport, Verdict
from draftmill.serving.facade import Flight
from draftmill.serving.fake import FakeServer

DOORS = ("payload", "read", "GENERATE", "pulse", "is_ready")


class Kept:
    """A keeper that lists; `full_after`: its disk is full then."""

    def __init__(self) -> None:
        self.completions: list[Completion] = []
        self.full_after: int | None = None

    def put(self, completion: Completion) -> None:
        if self.full_after is not None and len(self.completions) >= self.full_after:
            raise DatasetError("the journal cannot be used", value="disk full", expected="room", remedy="make room")
        self.completions.append(completion)

    @property
    def keys(self) -> list[str]:
        return [completion.row.row_key for completion in self.completions]


class GatedServer(FakeServer):
    """Answers a request only when `let` through, in the order of arrival."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate = asyncio.Semaphore(0)

    def let(self, number: int) -> None:
        for _ in range(number):
            self._gate.release()

    async def generate(self, flight: Flight) -> Any:
        await self._gate.acquire()
        return await super().generate(flight)


class Heard:
    """A progress listener that remembers."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.seen: list[Rows] = []

    def stage(self, text: str) -> None: ...

    def wait(self, text: str) -> None:
        self.waits.append(text)

    def rows(self, rows: Rows) -> None:
        self.seen.append(rows)


def build_recipe(urls: Sequence[str], *, breaker: Any = "off", **engine: Any) -> Recipe:
    data = {
        "dataset": "unused",
        "prompts": {"path": "unused"},
        "model": {"name": "fake-model", "context_length": 8192},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 100},
        "engine": {"urls": list(urls), "in_flight": 4, "retries": 2, "wait_s": 0, "weights": "record", **engine},
        "breaker": breaker,
    }
    return parse_recipe(data, origin="the test")


def build_rows(number: int, first: int = 0) -> list[Row]:
    """Rows with a prompt of their own each: [n, n + 1, n + 2] from 1000."""
    return [
        Row(f"{n:064x}", 0, f"p{n}", str(n), "default", 0, ids_array("p", [1000 + n, 1001 + n, 7]), 100, None, "s")
        for n in range(first, first + number)
    ]


def build_answer(output_ids: Sequence[int], **changes: Any) -> Answer:
    """Cut by length, of a server that tells no counts."""
    ids = ids_array("output_ids", output_ids)
    when = datetime(2026, 1, 2, tzinfo=UTC)
    return replace(Answer(ids, None, None, None, "length", None, None, "sglang 0.5.23", "default", when), **changes)


class Run:
    """An open pool with what the test needs to see of it."""

    def __init__(self, pool: Pool, kept: Kept, heard: Heard, aborted: list[str]) -> None:
        self.pool, self.kept, self.heard, self.aborted = pool, kept, heard, aborted


@contextlib.asynccontextmanager
async def open_run(
    *urls: str,
    judge: Callable[[Completion], Reason | None] = lambda completion: None,
    look_again: Callable[[ServerReport], Awaitable[Returned]] | None = None,
    num_rows: int = 0,
    night: Night = NO_END,
    recipe: Recipe | None = None,
    **settings: Any,
) -> AsyncIterator[Run]:
    """A pool of its own. `judge` gives one row's reason; `look_again` takes any server that is ready, by default."""
    recipe, kept, heard = recipe or build_recipe(urls, **settings), Kept(), Heard()
    aborted: list[str] = []

    async def abort(http: Any, url: str, rid: str) -> None:
        aborted.append(rid)
        await sglang.abort(http, url, rid)

    def judge_rows(completions: Sequence[Completion]) -> list[Verdict]:
        return [Verdict(judge(completion), "a detail", None, None, None) for completion in completions]

    protocol: Any = SimpleNamespace(**{name: getattr(sglang, name) for name in DOORS} | {"abort": abort})
    with listening(heard):
        async with open_http(recipe.engine) as http:

            async def ready(report: ServerReport) -> Returned:
                seen = await sglang.is_ready(http, report.url)
                return Returned(Return.SAME if seen is None else Return.NOT_YET, seen or "")

            async with Pool(
                recipe,
                protocol=protocol,
                http=http,
                reports=[report_of(url) for url in urls],
                keeper=kept,
                judge=judge_rows,
                look_again=look_again or ready,
                num_rows=num_rows,
                ways=ways_of(recipe, {}),
                night=night,
            ) as pool:
                yield Run(pool, kept, heard, aborted)


def report_of(url: str) -> ServerReport:
    return ServerReport(url, "sglang", "0.5.23", "fake-model", "default", 8192, 8186, None, False, {})


async def until(condition: Callable[[], object]) -> None:
    """Waits for what other tasks do; a test that waits in vain ends by its own timeout."""
    while not condition():
        await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(pool, "TICK_S", 0.01)
    monkeypatch.setattr(watch, "GRACE_S", 0.05)


@pytest.fixture(scope="session")
def a_run() -> Any:
    return open_run


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., list[Row]]:
    return build_rows


@pytest.fixture(scope="session")
def answer_of() -> Callable[..., Answer]:
    return build_answer


@pytest.fixture(scope="session")
def wait_until() -> Any:
    return until


@pytest.fixture(scope="session")
def gated_server() -> type[GatedServer]:
    return GatedServer


@pytest.fixture(scope="session")
def recipe_of() -> Callable[..., Recipe]:
    return build_recipe
