"""Rows that are asked on within the pool: each comes out once and whole, whatever happens between its rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from draftmill.errors import RunStopped
from draftmill.recipe import Recipe
from draftmill.records import Answer, Row
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import FakeAnswer
from draftmill.serving.faults import Fault, nth
from draftmill.serving.protocol import GenerateRequest

Rows = Callable[..., list[Row]]


def scripted(lengths: dict[int, int]) -> Callable[[GenerateRequest], FakeAnswer]:
    """To a prompt and the first k ids of its answer: the rest of it. The ids of an answer are all different."""

    def answer(request: GenerateRequest) -> FakeAnswer:
        first, so_far = request.prompt_ids[0], request.prompt_ids[3:]
        whole = whole_answer(first, lengths[first])
        assert tuple(whole[: len(so_far)]) == so_far, "asked on from other ids than were answered"
        return FakeAnswer(whole[len(so_far) :])

    return answer


def whole_answer(first: int, length: int) -> list[int]:
    return [*range(first * 1000, first * 1000 + length - 1), 2]


def in_slices(recipe: Recipe) -> Recipe:
    """Ten ids a request, fifty in all."""
    sampling = recipe.sampling.model_copy(update={"max_new_tokens": 10})
    return recipe.model_copy(update={"on_truncated": "continue", "continue_times": 4, "sampling": sampling})


@pytest.mark.parametrize("faults", [{}, {3: Fault.RESET_MIDWAY, 8: Fault.ERROR_500, 13: Fault.UNAVAILABLE}])
async def test_rows_are_asked_on_wherever_there_is_room_and_come_out_once_and_whole(
    a_run: Any, rows_of: Rows, recipe_of: Any, faults: dict[int, Fault]
) -> None:
    rows = [replace(row, max_new_tokens=50) for row in rows_of(12)]
    lengths = dict(zip((1000 + n for n in range(12)), (1, 9, 10, 11, 20, 21, 35, 49, 50, 51, 80, 5), strict=True))
    async with FakeServer(scripted(lengths), rule=nth(faults)) as one, FakeServer(scripted(lengths)) as other:
        recipe = in_slices(recipe_of([one.url, other.url], in_flight=2, retries=3, wait_s=600))
        async with a_run(one.url, other.url, recipe=recipe, num_rows=12) as run:
            asked = await run.pool.ask(rows, chunk=1)
    assert not asked.failures + asked.pending
    assert sorted(completion.row.row_key for completion in asked.completions) == sorted(row.row_key for row in rows)
    assert run.pool.counts.done == 12
    for completion in asked.completions:
        first = int(completion.row.prompt_ids[0])
        assert completion.row.prompt_ids.tolist() == [first, first + 1, 7]
        assert completion.answer.output_ids.tolist() == whole_answer(first, lengths[first])[:50]
        assert completion.answer.finish_type == ("stop" if lengths[first] <= 50 else "length")
        rounds = -(-min(lengths[first], 50) // 10)
        kept = [each for each in run.kept.completions if each.row.row_key == completion.row.row_key]
        assert [each.row.attempt for each in kept] == list(range(rounds))
        assert [len(each.answer.output_ids) for each in kept[:-1]] == [10 * n for n in range(1, rounds)]
    good = [entry for fake in (one, other) for entry in fake.log if entry.status == 200 and not entry.fault]
    assert len(good) == len(run.kept.completions)
    assert run.pool.counts.tokens == sum(min(length, 50) for length in lengths.values())


async def test_each_round_has_its_own_tries(a_run: Any, rows_of: Rows, recipe_of: Any) -> None:
    (row,) = [replace(row, max_new_tokens=50) for row in rows_of(1)]
    faults = dict.fromkeys((1, 3, 5, 7, 9), Fault.ERROR_500)  # the first try of every round
    async with FakeServer(scripted({1000: 45}), rule=nth(faults)) as fake:
        async with a_run(fake.url, recipe=in_slices(recipe_of([fake.url], retries=1))) as run:
            asked = await run.pool.ask([row], chunk=1)
        assert len(fake.log) == 10
    assert [len(completion.answer.output_ids) for completion in asked.completions] == [45]
    assert run.pool.counts.retries == 5


async def test_a_stop_between_rounds_leaves_the_row_pending_and_its_ids_kept(
    a_run: Any, rows_of: Rows, recipe_of: Any, gated_server: Any, wait_until: Any
) -> None:
    rows = [replace(row, max_new_tokens=50) for row in rows_of(2)]
    async with gated_server(scripted({1000: 45, 1001: 10})) as fake:
        async with a_run(fake.url, recipe=in_slices(recipe_of([fake.url]))) as run:
            asking = asyncio.create_task(run.pool.ask(rows, chunk=1))
            await wait_until(lambda: len(fake.flights) == 2)
            run.pool.stop(RunStopped("enough", value="", expected="", remedy=""))
            fake.let(9)
            async with asyncio.timeout(60):
                asked = await asking
        assert len(fake.log) == 2
    assert [row.row_key for row in asked.pending] == [rows[0].row_key]
    assert [completion.row.row_key for completion in asked.completions] == [rows[1].row_key]
    kept = {completion.row.row_key: len(completion.answer.output_ids) for completion in run.kept.completions}
    assert kept == {rows[0].row_key: 10, rows[1].row_key: 10}
    assert asked.tokens == run.pool.counts.tokens == 20


async def test_a_prior_is_where_a_row_goes_on(
    a_run: Any, rows_of: Rows, recipe_of: Any, answer_of: Callable[..., Answer]
) -> None:
    rows = [replace(row, attempt=3, max_new_tokens=50) for row in rows_of(2)]
    prior = answer_of(whole_answer(1000, 45)[:20])
    async with FakeServer(scripted({1000: 45, 1001: 4})) as fake:
        async with a_run(fake.url, recipe=in_slices(recipe_of([fake.url], in_flight=1))) as run:
            asked = await run.pool.ask(rows, chunk=1, priors={rows[0].key: prior})
        sent = [len(entry.input_ids or []) for entry in fake.log]
    by_key = {completion.row.row_key: completion for completion in asked.completions}
    assert by_key[rows[0].row_key].answer.output_ids.tolist() == whole_answer(1000, 45)
    assert by_key[rows[0].row_key].row.attempt == 5
    assert by_key[rows[1].row_key].answer.output_ids.tolist() == whole_answer(1001, 4)
    assert sorted(sent) == [3, 23, 33, 43]
    assert run.pool.counts.tokens == asked.tokens == 25 + 4


@pytest.mark.parametrize(("setting", "expected"), [("record", "default+default-other"), ("stop", None)])
async def test_weights_that_change_between_the_rounds_of_a_row(
    a_run: Any, rows_of: Rows, recipe_of: Any, setting: str, expected: str | None
) -> None:
    (row,) = [replace(row, max_new_tokens=50) for row in rows_of(1)]
    async with FakeServer(scripted({1000: 25}), rule=nth(dict.fromkeys((2, 3), Fault.OTHER_WEIGHTS))) as fake:
        async with a_run(fake.url, recipe=in_slices(recipe_of([fake.url], weights=setting))) as run:
            asked = await run.pool.ask([row], chunk=1)
    versions = [completion.answer.weight_version for completion in run.kept.completions]
    if expected is None:
        assert (versions, len(asked.pending)) == (["default"], 1)
        assert run.pool.stopped is not None
        assert "other weights" in run.pool.stopped.what
        return
    assert versions == ["default", expected, expected]
    assert asked.completions[0].answer.output_ids.tolist() == whole_answer(1000, 25)


async def test_the_pool_says_which_weights_its_servers_name(a_run: Any) -> None:
    async with a_run("http://127.0.0.1:9", "http://127.0.0.1:10") as run:
        assert run.pool.weight_versions == {"default"}
