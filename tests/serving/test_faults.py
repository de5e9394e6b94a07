"""Each fault of the fake server, as a promise: what the client sees, and that nothing else is spoiled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, in_order
from draftmill.serving.faults import Act, Fault, always, by_chance, nth
from draftmill.serving.protocol import Limits

OPEN, CLOSE, END = 50, 51, 52
MARKERS = Markers(OPEN, CLOSE, END)
PROMPT = [5, 6, OPEN]
ANSWER = [11, 12, CLOSE, 13, 14, END]


def server(fault: Act | Fault) -> FakeServer:
    return FakeServer(in_order([ANSWER]), rule=always(fault), markers=MARKERS, limits=Limits(8192, vocabulary=100))


async def spoiled(client: Any, fault: Act | Fault) -> dict[str, Any]:
    async with server(fault) as fake:
        status, body = await client.generate(fake.url, PROMPT, rid="r")
    assert status == 200
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize(
    ("fault", "ids"),
    [
        (Fault.STRIPPED_MARKER, [11, 12, 13, 14, END]),
        (Act(Fault.PROMPT_TAIL_FIRST, 2), [6, OPEN, *ANSWER]),
        (Fault.OPENED_AGAIN, [OPEN, *ANSWER]),
        (Fault.NO_END, ANSWER[:-1]),
        (Fault.ID_OUT_OF_RANGE, [100, *ANSWER[1:]]),
        (Fault.CLIPPED_BUDGET, ANSWER[:3]),
        (Fault.EMPTIED, []),
        (Act(Fault.PAST_END, 2), [*ANSWER, 11, 12]),
        (Fault.FORCED_CLOSE, [11, CLOSE, 12, CLOSE, 13, 14, END]),
        (Act(Fault.NEXT_TURN, 2), [11, 12, CLOSE, 13, 14, 5, 6, END]),
        (Fault.NO_CONTENT, [11, 12, CLOSE, END]),
        (Fault.ABORTED, ANSWER[:3]),
        (Fault.ABORTED_IN_QUEUE, []),
    ],
)
async def test_faults_of_ids_keep_the_count_honest(client: Any, fault: Act | Fault, ids: list[int]) -> None:
    body = await spoiled(client, fault)
    assert body["output_ids"] == ids
    assert body["meta_info"]["completion_tokens"] == len(ids)


@pytest.mark.parametrize(
    ("fault", "key", "value"),
    [
        (Fault.FEWER_PROMPT_TOKENS, "prompt_tokens", 2),
        (Fault.OTHER_RID, "id", "r-of-another"),
        (Fault.WRONG_COUNT, "completion_tokens", 7),
        (Fault.NAN, "finish_reason", {"type": "stop", "matched": "NaN happened"}),
        (Fault.CLIPPED_BUDGET, "finish_reason", {"type": "length", "length": 3}),
        (Fault.OTHER_WEIGHTS, "weight_version", "default-other"),
    ],
)
async def test_faults_of_metadata_change_that_alone(client: Any, fault: Fault, key: str, value: object) -> None:
    body = await spoiled(client, fault)
    assert body["meta_info"][key] == value
    assert body["prompt_token_ids"] == PROMPT
    if fault is not Fault.CLIPPED_BUDGET:
        assert body["output_ids"] == ANSWER


async def test_a_trimmed_answer_is_counted_whole(client: Any) -> None:
    body = await spoiled(client, Fault.TRIMMED)
    assert (body["output_ids"], body["meta_info"]["completion_tokens"]) == (ANSWER[:-1], len(ANSWER))
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": END}


async def test_a_loop_fills_the_budget_and_says_so(client: Any) -> None:
    async with server(Fault.LOOPED) as fake:
        _, body = await client.generate(fake.url, PROMPT, max_new_tokens=12)
    assert body["output_ids"] == [11, 12, CLOSE, 13, 14, 12, CLOSE, 13, 14, 12, CLOSE, 13]
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 12}
    assert body["meta_info"]["completion_tokens"] == 12


async def test_a_model_that_opens_by_itself_loses_both_markers(client: Any) -> None:
    always_stripped = always(Fault.STRIPPED_MARKER)
    async with FakeServer(in_order([[OPEN, *ANSWER]]), rule=always_stripped, markers=MARKERS) as fake:
        _, body = await client.generate(fake.url, PROMPT[:2])
    assert body["output_ids"] == [11, 12, 13, 14, END]


async def test_an_abort_in_the_queue_has_the_recorded_keys(client: Any, recordings: dict[str, Any]) -> None:
    body = await spoiled(client, Fault.ABORTED_IN_QUEUE)
    theirs = recordings["inflight_abort_queued"]["waiting_client"]["body"]["meta_info"]
    assert body["meta_info"].keys() == theirs.keys() - {"response_sent_to_client_ts"}
    assert body["meta_info"]["finish_reason"] == theirs["finish_reason"]


async def test_the_echo_can_be_wrong_and_the_ids_missing(client: Any) -> None:
    echo = (await spoiled(client, Fault.WRONG_ECHO))["prompt_token_ids"]
    assert len(echo) == len(PROMPT)
    assert echo != PROMPT
    assert "output_ids" not in await spoiled(client, Fault.NO_OUTPUT_IDS)


async def test_json_can_be_another_servers(client: Any) -> None:
    assert "meta_info" not in await spoiled(client, Fault.FOREIGN_JSON)


@pytest.mark.parametrize(
    ("fault", "status", "kind", "retry_after"),
    [
        (Fault.ERROR_500, 500, "text/plain", None),
        (Fault.BAD_GATEWAY, 502, "text/html", None),
        (Fault.UNAVAILABLE, 503, "application/json", None),
        (Act(Fault.RATE_LIMITED, 7), 429, "text/plain", "7"),
    ],
)
async def test_answers_of_servers_and_proxies(
    client: Any, fault: Act | Fault, status: int, kind: str, retry_after: str | None
) -> None:
    async with server(fault) as fake:
        async with client.session.post(f"{fake.url}/generate", json={"input_ids": PROMPT}) as response:
            seen = (response.status, response.content_type, response.headers.get("Retry-After"))
        assert seen == (status, kind, retry_after)
        assert [entry.status for entry in fake.log] == [status]
        assert fake.log[0].output_ids is None


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.RESET_MIDWAY])
async def test_resets_reach_the_client(client: Any, fault: Fault) -> None:
    async with server(fault) as fake:
        with pytest.raises(aiohttp.ClientError):
            await client.generate(fake.url, PROMPT)


async def test_a_reset_midway_comes_after_a_good_status(client: Any) -> None:
    body = {"input_ids": PROMPT}
    async with server(Fault.RESET_MIDWAY) as fake, client.session.post(f"{fake.url}/generate", json=body) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            await response.read()


async def test_a_reset_afterwards_leaves_the_answer_whole(client: Any) -> None:
    async with server(Fault.RESET_AFTER) as fake:
        status, body = await client.generate(fake.url, PROMPT)
    assert (status, body["output_ids"]) == (200, ANSWER)


async def test_only_a_connection_that_served_before_is_reset(client: Any) -> None:
    async with FakeServer(in_order([ANSWER]), rule=nth({1: Fault.RESET_REUSED, 2: Fault.RESET_REUSED})) as fake:
        assert (await client.generate(fake.url, PROMPT))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await client.generate(fake.url, PROMPT)
        assert (await client.generate(fake.url, PROMPT))[0] == 200
    assert [(entry.fault, entry.status) for entry in fake.log] == [(None, 200), ("reset_reused", None), (None, 200)]


async def test_json_can_end_in_the_middle(client: Any) -> None:
    async with server(Fault.TRUNCATED_JSON) as fake:
        with pytest.raises(json.JSONDecodeError):
            await client.generate(fake.url, PROMPT)


async def test_a_hanging_request_never_ends_and_others_go_on(client: Any) -> None:
    async with FakeServer(in_order([ANSWER]), rule=nth({1: Fault.HANG})) as fake:
        hanging = asyncio.create_task(client.generate(fake.url, PROMPT))
        while not fake.log:
            await asyncio.sleep(0.005)
        assert (await client.generate(fake.url, PROMPT))[0] == 200
        assert not hanging.done()
        hanging.cancel()
        while fake.log[0].ended_at is None:
            await asyncio.sleep(0.005)
    assert (fake.log[0].fault, fake.log[0].status) == (Fault.HANG, None)


async def test_nth_names_requests_by_number(client: Any) -> None:
    async with FakeServer(in_order([ANSWER]), rule=nth({2: Fault.ERROR_500})) as fake:
        statuses = [(await client.generate(fake.url, PROMPT))[0] for _ in range(3)]
    assert statuses == [200, 500, 200]
    assert [entry.fault for entry in fake.log] == [None, "error_500", None]


async def test_chances_depend_on_prompt_and_try_not_on_order(client: Any) -> None:
    async def faults(prompts: list[list[int]]) -> dict[tuple[int, ...], list[str | None]]:
        seen: dict[tuple[int, ...], list[str | None]] = {}
        chances = {Fault.ERROR_500: 0.3, Fault.NO_END: 0.3}
        async with FakeServer(in_order([ANSWER]), rule=by_chance(chances, seed=4)) as fake:
            for prompt in prompts:
                await client.generate(fake.url, prompt)
            for entry in fake.log:
                seen.setdefault(tuple(entry.input_ids or ()), []).append(entry.fault)
        return seen

    prompts = [[n] for n in range(40)]
    first = await faults(prompts + prompts)
    assert first == await faults(prompts[::-1] + prompts)
    drawn = [fault for faults_of_prompt in first.values() for fault in faults_of_prompt]
    assert {None, "error_500", "no_end"} == set(drawn)
    assert any(one != other for one, other in first.values())


def test_every_fault_is_done_somewhere() -> None:
    from draftmill.serving.faults import _CHANGES
    from draftmill.serving.wire_faults import INSTEAD

    on_the_wire = {Fault.RESET_MIDWAY, Fault.RESET_AFTER, Fault.TRUNCATED_JSON, Fault.FOREIGN_JSON}
    assert _CHANGES.keys() | INSTEAD | on_the_wire == set(Fault)
