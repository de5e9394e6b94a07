"""The pool against the fake server: every row comes out once, in one place, whatever the server does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.errors import RunStopped
from draftmill.generation.tickets import Asked
from draftmill.records import Completion, Reason, Row
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.fake_answers import Seeded
from draftmill.serving.faults import Act, Fault, always, by_chance, nth

WAITED_FOR = [
    Fault.UNAVAILABLE,
    Act(Fault.RATE_LIMITED, 0),
]
RETRIED = [
    Fault.ERROR_500,
    Fault.BAD_GATEWAY,
    Fault.RESET_BEFORE,
    Fault.RESET_MIDWAY,
    Fault.TRUNCATED_JSON,
    Fault.FOREIGN_JSON,
    Fault.OTHER_RID,
    Fault.NO_OUTPUT_IDS,
]
ABORTED = [Fault.ABORTED, Fault.ABORTED_IN_QUEUE]
FOR_THE_JUDGE = [
    Fault.RESET_AFTER,
    Fault.WRONG_ECHO,
    Fault.FEWER_PROMPT_TOKENS,
    Fault.WRONG_COUNT,
    Fault.ID_OUT_OF_RANGE,
    Fault.NAN,
    Fault.STRIPPED_MARKER,
    Fault.PROMPT_TAIL_FIRST,
    Fault.OPENED_AGAIN,
    Fault.NO_END,
    Fault.CLIPPED_BUDGET,
    Fault.OTHER_WEIGHTS,
    Fault.TRIMMED,
    Fault.EMPTIED,
    Fault.PAST_END,
    Fault.FORCED_CLOSE,
    Fault.NEXT_TURN,
    Fault.NO_CONTENT,
    Fault.LOOPED,
]
Rows = Callable[..., list[Row]]


def name_of(fault: Act | Fault) -> str:
    return str(fault.fault if isinstance(fault, Act) else fault)


def test_every_fault_but_silence_is_in_one_of_the_lists() -> None:
    # Silence is tests/generation/test_watch.py's.
    listed = {name_of(fault) for fault in [*WAITED_FOR, *RETRIED, *ABORTED, *FOR_THE_JUDGE]}
    assert listed == set(Fault) - {Fault.HANG, Fault.RESET_REUSED}


def places(asked: Asked) -> Counter[str]:
    """How often each row came out."""
    rows = [
        *(completion.row for completion in asked.completions),
        *(failure.row for failure in asked.failures),
        *asked.pending,
    ]
    return Counter(row.row_key for row in rows)


def assert_once(asked: Asked, rows: list[Row]) -> None:
    assert places(asked) == Counter(row.row_key for row in rows)


def sent_to(fake: FakeServer) -> dict[tuple[int, ...], list[int] | None]:
    """What the server last answered, by prompt."""
    return {tuple(entry.input_ids or ()): entry.output_ids for entry in fake.log}


async def test_good_answers_are_the_ids_the_server_sent(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(20)
    async with FakeServer() as fake, a_run(fake.url, num_rows=20) as run:
        asked = await run.pool.ask(rows, chunk=1)
        assert_once(asked, rows)
        sent = sent_to(fake)
    assert len(asked.completions) == len(fake.log) == run.pool.counts.requests == 20
    for completion in asked.completions:
        assert completion.answer.output_ids.tolist() == sent[tuple(completion.row.prompt_ids.tolist())]
        assert completion.answer.engine == "sglang 0.5.23"
    assert sorted(run.kept.keys) == sorted(row.row_key for row in rows)
    assert (run.heard.seen[-1].done, run.heard.seen[-1].total) == (20, 20)
    assert run.pool.counts.tokens == sum(len(completion.answer.output_ids) for completion in asked.completions)


@pytest.mark.parametrize("fault", [*WAITED_FOR, *RETRIED, *ABORTED, *FOR_THE_JUDGE], ids=name_of)
async def test_every_row_comes_out_once_under_a_fault_by_chance(a_run: Any, rows_of: Rows, fault: Act | Fault) -> None:
    rows = rows_of(12)
    chance = by_chance({Fault(name_of(fault)): 0.4}, seed=3)

    def rule(number: int, request: Any) -> Act | Fault | None:
        return fault if chance(number, request) is not None else None

    async with FakeServer(rule=rule) as fake, a_run(fake.url, retries=20, wait_s=60) as run:
        asked = await run.pool.ask(rows, chunk=1)
        assert_once(asked, rows)
        sent = sent_to(fake)
        assert {entry.fault for entry in fake.log} == {None, name_of(fault)}
    assert len(asked.completions) == 12
    assert sorted(run.kept.keys) == sorted(row.row_key for row in rows)
    # A connection that was reset behind an answer fails its next request before the server sees it.
    assert run.pool.counts.requests == len(fake.log) or fault is Fault.RESET_AFTER
    assert run.pool.counts.retries == run.pool.counts.requests - 12
    for completion in asked.completions:
        assert completion.answer.output_ids.tolist() == sent[tuple(completion.row.prompt_ids.tolist())]


@pytest.mark.parametrize("fault", RETRIED, ids=name_of)
async def test_a_row_that_is_never_answered_well_fails_with_the_words(
    a_run: Any, rows_of: Rows, fault: Act | Fault
) -> None:
    async with FakeServer(rule=always(fault)) as fake, a_run(fake.url, retries=2) as run:
        asked = await run.pool.ask(rows_of(1), chunk=1)
    (failure,) = asked.failures
    assert (failure.tries, len(fake.log), run.kept.completions) == (3, 3, [])
    assert failure.words
    assert run.pool.stopped is None


@pytest.mark.parametrize("fault", ABORTED)
async def test_a_row_aborted_to_the_last_is_kept_as_an_aborted_answer(a_run: Any, rows_of: Rows, fault: Fault) -> None:
    async with FakeServer(rule=always(fault)) as fake, a_run(fake.url, retries=2) as run:
        asked = await run.pool.ask(rows_of(1), chunk=1)
    (completion,) = asked.completions
    assert completion.answer.finish_type == "abort"
    assert completion.answer.output_ids.tolist() == fake.log[-1].output_ids
    assert len(fake.log) == 3
    assert run.kept.completions == [completion]


@pytest.mark.parametrize("fault", FOR_THE_JUDGE)
async def test_a_silent_fault_is_an_answer_for_the_judge_and_not_asked_again(
    a_run: Any, rows_of: Rows, fault: Fault
) -> None:
    async with FakeServer(rule=always(fault)) as fake, a_run(fake.url) as run:
        asked = await run.pool.ask(rows_of(1), chunk=1)
    assert len(asked.completions) == len(fake.log) == 1
    assert asked.completions[0].answer.output_ids.tolist() == fake.log[0].output_ids


async def test_a_refused_row_fails_at_once_and_the_others_go_on(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(3)
    empty = Row("e", 0, "p", "e", "default", 0, rows[0].prompt_ids[:0], 100, None, "s")
    async with FakeServer() as fake, a_run(fake.url, retries=5) as run:
        asked = await run.pool.ask([empty, *rows], chunk=1)
    assert len(asked.completions) == 3
    assert [(f.row.row_key, f.words, f.tries) for f in asked.failures] == [
        ("e", "HTTP 400: input_ids cannot be empty.", 1)
    ]
    assert len(fake.log) == 4


@given(
    faults=st.dictionaries(st.integers(1, 12), st.sampled_from([*RETRIED, *ABORTED, *FOR_THE_JUDGE]), max_size=6),
    in_flight=st.integers(1, 4),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3),
)
@settings(max_examples=12)
def test_any_mixture_of_faults_leaves_every_row_in_one_place(
    a_run: Any, rows_of: Rows, faults: dict[int, Act | Fault], in_flight: int, sizes: list[int]
) -> None:
    async def go() -> None:
        chunks = [rows_of(size, 100 * number) for number, size in enumerate(sizes)]
        async with FakeServer(rule=nth(faults)) as fake, a_run(fake.url, retries=1, in_flight=in_flight) as run:

            async def chain(number: int, rows: list[Row]) -> Asked:
                async with run.pool.opened(number, len(rows)):
                    return await run.pool.ask(rows, chunk=number)

            results = await asyncio.gather(*(chain(number, rows) for number, rows in enumerate(chunks)))
            for asked, rows in zip(results, chunks, strict=True):
                assert_once(asked, rows)
                assert not asked.pending
            finished = [completion for asked in results for completion in asked.completions]
            assert Counter(map(id, run.kept.completions)) == Counter(map(id, finished))
            assert run.pool.counts.requests >= len(fake.log)
            assert run.pool.counts.done == sum(sizes)

    asyncio.run(go())


async def test_rows_are_granted_in_chunk_order(a_run: Any, rows_of: Rows) -> None:
    early, late = rows_of(5), rows_of(5, 100)
    async with FakeServer() as fake, a_run(fake.url, in_flight=1) as run:
        later = asyncio.create_task(run.pool.ask(late, chunk=2))
        earlier = asyncio.create_task(run.pool.ask(early, chunk=1))
        await asyncio.gather(earlier, later)
    asked = [entry.input_ids for entry in fake.log]
    assert asked == [row.prompt_ids.tolist() for row in [*early, *late]]


async def test_a_row_that_is_sent_again_goes_before_later_rows(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(3)
    async with FakeServer(rule=nth({1: Fault.ERROR_500}), latency=Latency(0.02)) as fake:
        async with a_run(fake.url, in_flight=1) as run:
            await run.pool.ask(rows, chunk=1)
    first, second, third = (row.prompt_ids.tolist() for row in rows)
    assert [entry.input_ids for entry in fake.log] == [first, second, first, third]


async def test_as_many_are_in_flight_as_allowed_and_never_more(a_run: Any, rows_of: Rows) -> None:
    flying: list[int] = []

    class Watched(FakeServer):
        async def generate(self, flight: Any) -> Any:
            flying.append(len(self.flights))
            return await super().generate(flight)

    async with Watched(latency=Latency(0.01)) as one, Watched(latency=Latency(0.01)) as other:
        async with a_run(one.url, other.url, in_flight=3) as run:
            await run.pool.ask(rows_of(30), chunk=1)
    assert max(flying) == 3
    assert len(one.log) + len(other.log) == 30
    assert one.log
    assert other.log


async def test_the_next_chunk_opens_when_the_unsent_rows_fall_below_the_budget(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    opened: list[int] = []
    async with gated_server() as fake, a_run(fake.url, in_flight=2) as run:

        async def chain(number: int, size: int) -> Asked:
            async with run.pool.opened(number, size):
                opened.append(number)
                return await run.pool.ask(rows_of(size, 100 * number), chunk=number)

        chains = [asyncio.create_task(chain(number, 4)) for number in (1, 2, 3)]
        await wait_until(lambda: len(fake.flights) == 2)
        assert opened == [1]  # two sent, two unsent: as many as the budget
        fake.let(1)
        await wait_until(lambda: len(fake.log) == 3)
        await wait_until(lambda: len(opened) == 2)  # one unsent
        for sent in range(4, 13):
            # While rows wait, a free lane is filled before anything else is answered: no idle tail.
            fake.let(1)
            await wait_until(lambda sent=sent: len(fake.log) == sent and len(fake.flights) == 2)
        fake.let(2)
        results = await asyncio.gather(*chains)
    assert opened == [1, 2, 3]
    assert [len(asked.completions) for asked in results] == [4, 4, 4]
    numbers = [(entry.input_ids or [0])[0] for entry in fake.log]
    assert numbers == sorted(numbers)


async def test_stop_lets_what_is_in_flight_finish_and_returns_the_rest(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    rows = rows_of(5)
    async with gated_server() as fake, a_run(fake.url, in_flight=2) as run:
        asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
        waiting = asyncio.create_task(run.pool.ask(rows_of(3, 100), chunk=2))
        await wait_until(lambda: len(fake.flights) == 2)
        error = RunStopped("enough", value="", expected="", remedy="")
        run.pool.stop(error)
        run.pool.stop(RunStopped("later", value="", expected="", remedy=""))
        fake.let(2)
        asked = await asking
        assert len((await waiting).pending) == 3
        assert len((await run.pool.ask(rows_of(2, 200), chunk=3)).pending) == 2
    assert_once(asked, rows)
    assert (len(asked.completions), len(asked.pending), len(fake.log)) == (2, 3, 2)
    assert run.pool.stopped is error


async def test_a_stopped_run_does_not_sit_out_a_pause(a_run: Any, rows_of: Rows, wait_until: Any) -> None:
    async with FakeServer(rule=always(Act(Fault.RATE_LIMITED, 300))) as fake, a_run(fake.url) as run:
        asking = asyncio.create_task(run.pool.ask(rows_of(2), chunk=1))
        await wait_until(lambda: run.pool.counts.requests == 2)
        run.pool.stop(RunStopped("enough", value="", expected="", remedy=""))
        async with asyncio.timeout(60):
            assert len((await asking).pending) == 2
    assert len(fake.log) == 2


async def test_stop_wakes_chunks_that_wait_for_their_turn(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    async with gated_server() as fake, a_run(fake.url, in_flight=1) as run:
        asking = asyncio.create_task(run.pool.ask(rows_of(3), chunk=1))
        await wait_until(lambda: len(fake.flights) == 1)

        async def turn(number: int) -> None:
            async with run.pool.opened(number, 5):
                assert run.pool.stopped

        turns = [asyncio.create_task(turn(number)) for number in (2, 3)]
        await asyncio.sleep(0)
        run.pool.stop(RunStopped("enough", value="", expected="", remedy=""))
        await asyncio.gather(*turns)
        fake.let(1)
        await asking


async def test_a_server_that_comes_back_in_time_finishes_the_run(a_run: Any, rows_of: Rows, wait_until: Any) -> None:
    async with FakeServer() as before:
        port = before.port
    async with a_run(f"http://127.0.0.1:{port}", wait_s=600, in_flight=2) as run:
        asking = asyncio.create_task(run.pool.ask(rows_of(6), chunk=1))
        await wait_until(lambda: len(run.heard.waits) >= 3)
        async with FakeServer(port=port) as fake:
            asked = await asking
    assert len(asked.completions) == 6
    assert len(fake.log) == run.pool.counts.requests == 6  # a refused connection is no request
    assert run.pool.counts.retries == 0
    assert "taken out" in run.heard.waits[0]


async def test_all_servers_gone_for_too_long_stops_the_run_and_keeps_what_is_finished(
    a_run: Any, rows_of: Rows
) -> None:
    async with FakeServer() as fake, a_run(fake.url, wait_s=0) as run:
        first = await run.pool.ask(rows_of(3), chunk=1)
        await fake.close()
        second = await run.pool.ask(rows_of(4, 100), chunk=2)
    assert (len(first.completions), len(second.pending)) == (3, 4)
    assert len(run.kept.completions) == 3
    assert isinstance(run.pool.stopped, RunStopped)
    assert "finished rows are kept" in run.pool.stopped.remedy


async def test_one_server_gone_of_two_leaves_the_work_to_the_other(a_run: Any, rows_of: Rows) -> None:
    async with FakeServer() as gone:
        pass
    async with FakeServer() as fake, a_run(gone.url, fake.url, wait_s=0, in_flight=2) as run:
        asked = await run.pool.ask(rows_of(10), chunk=1)
    assert (len(asked.completions), run.pool.stopped, len(fake.log)) == (10, None, 10)


async def test_a_refused_key_stops_the_run(a_run: Any, rows_of: Rows) -> None:
    card = Card("fake-model", "0.5.23", api_key="sekret", slots=64)
    rows = rows_of(20)
    async with FakeServer(card=card) as fake, a_run(fake.url, in_flight=2) as run:
        asked = await run.pool.ask(rows, chunk=1)
    assert_once(asked, rows)
    assert len(asked.pending) == 20
    assert run.pool.counts.requests <= 2
    assert isinstance(run.pool.stopped, RunStopped)
    assert "engine.api_key_env" in run.pool.stopped.remedy
    assert "sekret" not in str(run.pool.stopped)


@pytest.mark.parametrize("status", [302, 307, 404])
async def test_a_server_of_another_kind_stops_the_run_and_is_not_followed(
    a_run: Any, rows_of: Rows, status: int
) -> None:
    followed = []

    async def away(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "/elsewhere"})

    async def elsewhere(request: web.Request) -> web.Response:
        followed.append(request)
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/generate", away), web.route("*", "/elsewhere", elsewhere)])
    async with TestServer(app) as server:
        async with a_run(str(server.make_url("")).rstrip("/")) as run:
            asked = await run.pool.ask(rows_of(6), chunk=1)
    assert len(asked.pending) == 6
    assert f"HTTP {status}" in str(run.pool.stopped)
    assert not followed


async def test_a_journal_that_cannot_write_stops_the_run(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(10)
    async with FakeServer() as fake, a_run(fake.url, in_flight=2) as run:
        run.kept.full_after = 3
        asked = await run.pool.ask(rows, chunk=1)
    assert_once(asked, rows)
    assert len(asked.completions) == len(run.kept.completions) == 3
    assert run.pool.stopped.value == "disk full"
    assert len(fake.log) < 10


async def test_an_error_nobody_thought_of_stops_the_run_and_no_row_waits_for_ever(
    a_run: Any, rows_of: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    def judge(_: Any) -> Reason | None:
        raise ZeroDivisionError("a bug")

    rows = rows_of(6)
    breaker = {"share": 0.5, "window": 1}
    async with FakeServer() as fake, a_run(fake.url, judge=judge, breaker=breaker, in_flight=2) as run:
        asked = await run.pool.ask(rows, chunk=1)
    assert_once(asked, rows)
    assert isinstance(run.pool.stopped, RunStopped)
    assert "ZeroDivisionError" in str(run.pool.stopped)
    assert "ZeroDivisionError" in caplog.text
    assert {completion.row.row_key for completion in run.kept.completions} <= {row.row_key for row in asked.pending}


async def test_the_breaker_stops_the_run(a_run: Any, rows_of: Rows) -> None:
    rows = rows_of(30)

    def bad(_: Completion) -> Reason:
        return Reason.DEGENERATE

    async with FakeServer() as fake:
        async with a_run(fake.url, judge=bad, breaker={"share": 0.5, "window": 4}, in_flight=1) as run:
            asked = await run.pool.ask(rows, chunk=1)
    assert_once(asked, rows)
    assert (len(asked.completions), len(asked.pending)) == (4, 26)
    assert "degenerate 4" in str(run.pool.stopped)


async def test_leaving_the_pool_aborts_what_is_in_flight_on_the_server(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    async with gated_server() as fake:

        async def work() -> None:
            async with a_run(fake.url, in_flight=3) as run:
                runs.append(run)
                await run.pool.ask(rows_of(9), chunk=1)

        runs: list[Any] = []
        working = asyncio.create_task(work())
        await wait_until(lambda: len(fake.flights) == 3)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await wait_until(lambda: not fake.flights)
    assert sorted(runs[0].aborted) == sorted(entry.rid or "" for entry in fake.log)
    assert (len(fake.log), runs[0].kept.completions) == (3, [])


async def test_a_cancelled_call_leaves_nothing_that_would_still_be_sent(
    a_run: Any, rows_of: Rows, gated_server: Any, wait_until: Any
) -> None:
    async with gated_server() as fake, a_run(fake.url, in_flight=1) as run:
        asking = asyncio.create_task(run.pool.ask(rows_of(5), chunk=1))
        await wait_until(lambda: len(fake.flights) == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        fake.let(2)
        asked = await run.pool.ask(rows_of(1, 100), chunk=2)
    assert len(asked.completions) == 1
    assert len(fake.log) == 2
    assert len(run.kept.completions) == 2  # what was in flight came, and is kept


async def test_no_rows_are_asked_at_once(a_run: Any) -> None:
    async with FakeServer() as fake, a_run(fake.url) as run:
        assert len(await run.pool.ask([], chunk=1)) == 0
    assert not fake.log


async def test_rids_are_of_one_length_and_never_repeated(a_run: Any, rows_of: Rows) -> None:
    # Aborts match by prefix.
    async with FakeServer(Seeded(1), rule=by_chance({Fault.ERROR_500: 0.3})) as fake, a_run(fake.url, retries=9) as run:
        await run.pool.ask(rows_of(20), chunk=1)
    rids = [entry.rid or "" for entry in fake.log]
    assert {len(rid) for rid in rids} == {32}
    assert len(set(rids)) == len(rids) > 20


async def test_a_host_that_does_not_resolve_is_out_of_reach(a_run: Any, rows_of: Rows, monkeypatch: Any) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise OSError("no such host")

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", unknown)
    async with a_run("http://nowhere.invalid") as run:
        asked = await run.pool.ask(rows_of(2), chunk=1)
    assert len(asked.pending) == 2
    assert isinstance(run.pool.stopped, RunStopped)
