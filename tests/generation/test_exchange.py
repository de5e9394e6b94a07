"""One request and what came of it, over real connections: which fault a broken connection is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import aiohttp
import pytest

from draftmill.engines import sglang
from draftmill.generation import exchange as module
from draftmill.generation.exchange import exchange
from draftmill.generation.http import open_http
from draftmill.generation.servers import Flight
from draftmill.recipe import Recipe
from draftmill.records import Answer, Fault, FaultKind, Row
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.faults import Fault as Fake
from draftmill.serving.faults import always, nth

Rows = Callable[..., list[Row]]


class Client:
    """Sends one row after another over the session of a run."""

    def __init__(self, http: Any, recipe: Recipe, rows: list[Row]) -> None:
        self._http, self._recipe, self._rows, self._number = http, recipe, rows, 0
        self.flights: list[Flight] = []

    async def ask(self, url: str, *, age_s: float = 0.0) -> Answer | Fault:
        """`age_s`: how long it is out already."""
        row = self._rows[len(self.flights)]
        ticket: Any = None
        flight = Flight(f"{len(self.flights):032x}", ticket, row, time.monotonic() - age_s)
        self.flights.append(flight)
        body = sglang.payload(row, self._recipe.sampling, rid=flight.rid, model="m")
        return await exchange(self._http, sglang, flight, body, url=url, engine="sglang 1")

    async def kind(self, url: str, *, age_s: float = 0.0) -> FaultKind | None:
        result = await self.ask(url, age_s=age_s)
        return result.kind if isinstance(result, Fault) else None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALE_WITHIN_S", 60.0)  # a busy machine is no dead engine


@pytest.fixture
async def client(recipe_of: Callable[..., Recipe], rows_of: Rows) -> AsyncIterator[Client]:
    recipe = recipe_of(["http://unused"])
    async with open_http(recipe.engine) as http:
        yield Client(http, recipe, rows_of(20))


async def test_an_answer_and_what_was_used_for_it(client: Client) -> None:
    async with FakeServer() as fake:
        for _ in range(3):
            answer = await client.ask(fake.url)
            assert isinstance(answer, Answer)
            assert answer.output_ids.tolist() == fake.log[-1].output_ids
            assert answer.engine == "sglang 1"
    assert [flight.reused for flight in client.flights] == [False, True, True]


async def test_a_kept_connection_that_is_closed_at_once_is_stale(client: Client) -> None:
    async with FakeServer(rule=always(Fake.RESET_REUSED)) as fake:
        kinds = [await client.kind(fake.url) for _ in range(4)]
    # The new connection after it is good; then that one is a kept one.
    assert kinds == [None, FaultKind.STALE, None, FaultKind.STALE]


async def test_a_kept_connection_that_breaks_later_is_an_engine_that_died(client: Client) -> None:
    async with FakeServer(rule=always(Fake.RESET_REUSED)) as fake:
        assert await client.kind(fake.url) is None
        assert await client.kind(fake.url, age_s=module.STALE_WITHIN_S + 1) is FaultKind.RESET
    assert client.flights[-1].reused


@pytest.mark.parametrize("fault", [Fake.RESET_BEFORE, Fake.RESET_MIDWAY])
@pytest.mark.parametrize("number", [1, 2])
async def test_any_other_broken_connection_is_a_reset(client: Client, fault: Fake, number: int) -> None:
    """`number` 2: over a kept connection; with the head of an answer there it was no stale one."""
    async with FakeServer(rule=nth({number: fault})) as fake:
        kinds = [await client.kind(fake.url) for _ in range(number)]
    stale = fault is Fake.RESET_BEFORE and number == 2
    assert kinds[-1] is (FaultKind.STALE if stale else FaultKind.RESET)
    assert client.flights[-1].reused == (number == 2)


async def test_a_reset_behind_the_answer_is_an_answer(client: Client) -> None:
    async with FakeServer(rule=always(Fake.RESET_AFTER)) as fake:
        answer = await client.ask(fake.url)
        assert isinstance(answer, Answer)
        assert answer.output_ids.tolist() == fake.log[0].output_ids


async def test_a_dying_engine_is_a_reset_and_then_no_connection(client: Client) -> None:
    async with FakeServer(latency=Latency(60.0)) as fake:
        asking = asyncio.create_task(client.kind(fake.url))
        while not fake.flights:
            await asyncio.sleep(0.001)
        await fake.die(hang_s=0.01)
        assert await asking is FaultKind.RESET
        result = await client.ask(fake.url)
    assert isinstance(result, Fault)
    assert result.kind is FaultKind.CONNECT
    assert "refused" in result.words


class Raising:
    """A session in which every request ends with `error`, when it is entered or when the answer is read."""

    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, error: BaseException, *, on_reading: bool) -> None:
        self._error, self._on_reading = error, on_reading

    def post(self, *_: Any, **__: Any) -> Raising:
        return self

    async def __aenter__(self) -> Any:
        async def read() -> bytes:
            raise self._error

        if not self._on_reading:
            raise self._error
        return SimpleNamespace(status=200, headers={}, read=read)

    async def __aexit__(self, *_: object) -> None: ...


LATE = [aiohttp.ClientPayloadError("cut"), aiohttp.ServerDisconnectedError(), aiohttp.ClientOSError(104, "reset")]


@pytest.mark.parametrize(
    ("error", "on_reading", "expected"),
    [
        (aiohttp.ConnectionTimeoutError("slow"), False, FaultKind.CONNECT),
        (TimeoutError(), False, FaultKind.CONNECT),
        *((error, True, FaultKind.RESET) for error in LATE),
        (aiohttp.ServerDisconnectedError(), False, FaultKind.RESET),
        (OSError(104, "reset"), False, FaultKind.RESET),
        (aiohttp.InvalidURL("http://x"), False, FaultKind.RESET),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
async def test_no_exception_of_the_network_gets_out(
    client: Client, error: BaseException, on_reading: bool, expected: FaultKind
) -> None:
    client._http = Raising(error, on_reading=on_reading)
    result = await client.ask("http://unused")
    assert isinstance(result, Fault)
    assert result.kind is expected
    assert result.words


async def test_a_cancelled_request_is_cancelled_and_the_server_hears_of_it(client: Client) -> None:
    async with FakeServer(latency=Latency(60.0)) as fake:
        asking = asyncio.create_task(client.ask(fake.url))
        while not fake.flights:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while fake.flights:
            await asyncio.sleep(0.001)
