"""The fake server: its answers and pages against a real server's recordings, its pace, its queue, its log."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from draftmill.serving import fake_command
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.fake_answers import FakeAnswer, LogNormal, Markers, Seeded, by_prompt, finished, in_order
from draftmill.serving.protocol import GenerateRequest, Limits, read_generate

PROMPT = [5, 6, 7]
SLOW = Latency(per_id_s=0.02)

ANSWERED = [
    "gen_basic", "gen_max0", "gen_max1", "gen_max3", "gen_max_default", "gen_max_exactly_eos", "gen_max_null",
    "gen_ignore_eos", "gen_ignore_eos_stop_token_ids", "gen_no_rid", "gen_return_tokenids_off", "gen_rid_reuse_1",
    "gen_stop_token_ids", "gen_stop_token_ids_no_trim", "gen_unknown_toplevel", "misc_rid_300_chars",
    "misc_rid_empty", "misc_rid_null", "skiptok_generate", "skiptok_generate_eos_param",
    "edge_prompt_plus_max_eq_context", "edge_prompt_plus_max_eq_context_m1", "err_top_k_0",
]  # fmt: skip
ERRORS = [
    "err_unknown_path", "err_get_generate", "err_max_tokens", "err_empty_ids", "err_sampling_params_list_mismatch",
]  # fmt: skip
KEYS = [
    "key_generate_none", "key_generate_wrong", "key_generate_basic_scheme", "key_none_GET_health",
    "key_none_GET_health_generate", "key_none_GET_model_info", "key_none_GET_ping", "key_none_GET_ready",
    "key_none_GET_server_info", "key_none_GET_v1_models", "key_none_abort",
]  # fmt: skip


async def replay(client: Any, url: str, recording: dict[str, Any]) -> tuple[int, Any]:
    request = recording["request"]
    options = {name: request[name] for name in ("json", "headers") if name in request}
    if "raw" in request:
        options["data"] = request["raw"]
    status, body = await client.ask(request["method"], url + request["path"], **options)
    return status, body


def recorded_body(recording: dict[str, Any]) -> Any:
    response = recording["response"]
    return response.get("body", response.get("body_text"))


@pytest.mark.parametrize("name", ANSWERED)
async def test_answers_as_recorded(client: Any, recordings: dict[str, Any], name: str) -> None:
    theirs = recorded_body(recordings[name])
    ids = theirs["output_ids"]
    # A model that was cut would have gone on; one that stopped would not.
    whole = ids if theirs["meta_info"]["finish_reason"]["type"] == "stop" else [*ids, 9, 9, 2]
    async with FakeServer(in_order([whole])) as fake:
        status, ours = await replay(client, fake.url, recordings[name])
    assert status == 200
    assert ours["output_ids"] == ids
    assert ours.get("prompt_token_ids") == theirs.get("prompt_token_ids")
    for key in ("finish_reason", "prompt_tokens", "completion_tokens", "weight_version", "weight_versions"):
        assert ours["meta_info"][key] == theirs["meta_info"][key], key
    assert ours["meta_info"].keys() <= theirs["meta_info"].keys()
    if recordings[name]["request"]["json"].get("rid") is not None:
        assert ours["meta_info"]["id"] == theirs["meta_info"]["id"]


async def test_a_stop_string_is_matched_as_recorded(client: Any, recordings: dict[str, Any]) -> None:
    theirs = recorded_body(recordings["gen_stop_string"])
    async with FakeServer(in_order([FakeAnswer(theirs["output_ids"], matched="Paris")])) as fake:
        _, ours = await replay(client, fake.url, recordings["gen_stop_string"])
    assert ours["meta_info"]["finish_reason"] == theirs["meta_info"]["finish_reason"]


@pytest.mark.parametrize("name", ERRORS)
async def test_errors_as_recorded(client: Any, recordings: dict[str, Any], name: str) -> None:
    async with FakeServer() as fake:
        status, ours = await replay(client, fake.url, recordings[name])
    assert (status, ours) == (recordings[name]["response"]["status"], recorded_body(recordings[name]))


@pytest.mark.parametrize("name", KEYS)
async def test_the_key_is_asked_for_as_recorded(client: Any, recordings: dict[str, Any], name: str) -> None:
    async with FakeServer(card=Card("smol", "0.5.23", api_key="sekret")) as fake:
        status, ours = await replay(client, fake.url, recordings[name])
    assert status == recordings[name]["response"]["status"]
    if status == 401:
        assert ours == recorded_body(recordings[name])


async def test_the_right_key_opens(client: Any, recordings: dict[str, Any]) -> None:
    async with FakeServer(card=Card("smol", "0.5.23", api_key="sekret")) as fake:
        status, _ = await replay(client, fake.url, recordings["key_generate_right"])
    assert status == 200


@pytest.mark.parametrize(
    "name", ["info_model_info", "info_get_model_info", "info_server_info", "info_get_server_info", "info_v1_models"]
)
async def test_pages_say_what_a_real_one_says(client: Any, recordings: dict[str, Any], name: str) -> None:
    theirs = recorded_body(recordings[name])
    async with FakeServer(card=Card("smol", "0.5.23", slots=64)) as fake:
        status, ours = await replay(client, fake.url, recordings[name])
    assert status == 200
    assert ours.keys() - {"notes"} <= theirs.keys()
    same = {"served_model_name", "weight_version", "reasoning_parser", "preferred_sampling_params", "version"}
    same |= {"api_key", "max_req_input_len"}
    same |= {"allow_auto_truncate", "enable_strict_thinking", "max_running_requests", "object"}
    assert {key: ours.get(key) for key in same} == {key: theirs.get(key) for key in same}
    if name == "info_v1_models":
        assert ours["data"][0]["max_model_len"] == theirs["data"][0]["max_model_len"]


async def test_the_key_stands_in_server_info_twice_as_recorded(client: Any, recordings: dict[str, Any]) -> None:
    theirs = recorded_body(recordings["key_right_server_info"])
    async with FakeServer(card=Card("smol", "0.5.23", api_key="sekret"), limits=Limits(64)) as fake:
        _, ours = await replay(client, fake.url, recordings["key_right_server_info"])
    for page in (ours, theirs):
        assert page["api_key"] == page["internal_states"][0]["api_key"] == "sekret"
        assert page["max_req_input_len"] == 58


@pytest.mark.parametrize("name", ["info_health", "info_health_generate", "info_ping", "info_ready", "info_root"])
async def test_signs_of_life_as_recorded(client: Any, recordings: dict[str, Any], name: str) -> None:
    async with FakeServer() as fake:
        status, ours = await replay(client, fake.url, recordings[name])
    assert (status, ours) == (200, recorded_body(recordings[name]))


async def test_while_it_loads_only_the_model_page_answers(client: Any, recordings: dict[str, Any]) -> None:
    theirs = next(states for _, states in recordings["startup_with_warmup"] if states["model_info"] == 200)
    async with FakeServer(loading_s=3600) as fake:
        ours = {path: (await client.ask("GET", f"{fake.url}/{path}"))[0] for path in theirs}
    assert ours == theirs


async def test_a_full_queue_refuses_as_recorded(client: Any, recordings: dict[str, Any]) -> None:
    card = Card("smol", "0.5.23", slots=1)
    async with FakeServer(card=card, queue_limit=1, latency=Latency(first_s=0.3)) as fake:
        results = await asyncio.gather(*(client.generate(fake.url, PROMPT) for _ in recordings["queue_full"]))

    def outcome(status: int, body: Any) -> tuple[int, str]:
        return status, "" if status == 200 else json.dumps(body)

    ours = sorted(outcome(*result) for result in results)
    assert ours == sorted(outcome(answer["status"], answer["body"]) for answer in recordings["queue_full"])


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_abort_gives_the_ids_so_far_as_recorded(client: Any, recordings: dict[str, Any]) -> None:
    theirs = recordings["inflight_abort"]["waiting_client"]["body"]
    answer = list(range(100, 1000))
    async with FakeServer(in_order([answer]), latency=SLOW) as fake:
        waiting = asyncio.create_task(client.generate(fake.url, PROMPT, rid="abort-me-1", max_new_tokens=1000))
        await until(lambda: fake.log and fake.log[0].running_at)
        await asyncio.sleep(0.1)
        assert (await client.ask("POST", f"{fake.url}/abort_request", json={"rid": "abort-me-1"})) == (200, "")
        status, ours = await waiting
    assert status == 200
    assert ours["meta_info"]["finish_reason"] == theirs["meta_info"]["finish_reason"]
    assert 0 < len(ours["output_ids"]) < len(answer)
    assert ours["output_ids"] == answer[: len(ours["output_ids"])]
    assert ours["meta_info"]["completion_tokens"] == len(ours["output_ids"])


async def test_an_abort_in_the_queue_lacks_keys_as_recorded(client: Any, recordings: dict[str, Any]) -> None:
    theirs = recordings["inflight_abort_queued"]["waiting_client"]["body"]["meta_info"]
    async with FakeServer(card=Card("smol", "0.5.23", slots=1), latency=Latency(first_s=3600)) as fake:
        running = asyncio.create_task(client.generate(fake.url, PROMPT, rid="first"))
        await until(lambda: "first" in fake.flights and fake.flights["first"].running)
        queued = asyncio.create_task(client.generate(fake.url, PROMPT, rid="second"))
        await until(lambda: "second" in fake.flights)
        await client.ask("POST", f"{fake.url}/abort_request", json={"rid": "second"})
        _, ours = await queued
        await client.ask("POST", f"{fake.url}/abort_request", json={"abort_all": True})
        await running
    assert ours["output_ids"] == []
    assert "prompt_token_ids" not in ours
    assert ours["meta_info"]["finish_reason"] == theirs["finish_reason"]
    assert ours["meta_info"].keys() == theirs.keys() - {"response_sent_to_client_ts"}


async def test_an_abort_ends_all_that_begin_with_the_rid(client: Any) -> None:
    rids = ["pre-1", "pre-10", "pre-2"]
    async with FakeServer(latency=Latency(first_s=3600)) as fake:
        tasks = {rid: asyncio.create_task(client.generate(fake.url, PROMPT, rid=rid)) for rid in rids}
        await until(lambda: len(fake.flights) == 3)
        await client.ask("POST", f"{fake.url}/abort_request", json={})
        await client.ask("POST", f"{fake.url}/abort_request", json={"rid": "nothing-like-it"})
        await client.ask("POST", f"{fake.url}/abort_request", json={"rid": "pre-1"})
        await asyncio.gather(tasks["pre-1"], tasks["pre-10"])
        assert not tasks["pre-2"].done()
        await client.ask("POST", f"{fake.url}/abort_request", json={"abort_all": True})
        await tasks["pre-2"]


async def test_a_rid_in_flight_is_refused_as_recorded(client: Any, recordings: dict[str, Any]) -> None:
    async with FakeServer(latency=SLOW) as fake:
        first = asyncio.create_task(client.generate(fake.url, PROMPT, rid="dup-rid-1"))
        await until(lambda: "dup-rid-1" in fake.flights)
        second = await client.generate(fake.url, PROMPT, rid="dup-rid-1")
        assert (await first)[0] == 200
        assert (await client.generate(fake.url, PROMPT, rid="dup-rid-1"))[0] == 200
    theirs = recordings["inflight_duplicate_rid"]["second"]
    assert second == (theirs["status"], theirs["body"])


async def test_a_client_that_goes_away_frees_its_slot(client: Any) -> None:
    async with FakeServer(latency=Latency(first_s=3600)) as fake:
        task = asyncio.create_task(client.generate(fake.url, PROMPT))
        await until(lambda: fake.flights)
        task.cancel()
        await until(lambda: not fake.flights)
    assert fake.log[0].status is None
    assert fake.log[0].ended_at is not None


async def test_no_more_run_at_once_than_there_are_slots(client: Any) -> None:
    async with FakeServer(card=Card("smol", "0.5.23", slots=2), latency=Latency(first_s=0.1)) as fake:
        tasks = [asyncio.create_task(client.generate(fake.url, PROMPT)) for _ in range(6)]
        await until(lambda: len(fake.flights) == 6)
        _, page = await client.ask("GET", f"{fake.url}/v1/loads")
        assert all(status == 200 for status, _ in await asyncio.gather(*tasks))
    assert (page["loads"][0]["num_running_reqs"], page["loads"][0]["num_waiting_reqs"]) == (2, 4)


async def test_seeded_answers_depend_on_seed_and_prompt_alone(client: Any) -> None:
    async def ids_of(seed: int, prompts: list[list[int]]) -> dict[tuple[int, ...], list[int]]:
        async with FakeServer(Seeded(seed)) as fake:
            answers = await asyncio.gather(*(client.generate(fake.url, prompt) for prompt in prompts))
        return {tuple(prompt): body["output_ids"] for prompt, (_, body) in zip(prompts, answers, strict=True)}

    prompts = [[n, n + 1] for n in range(20)]
    first = await ids_of(1, prompts)
    assert first == await ids_of(1, prompts[::-1])
    assert len({tuple(ids) for ids in first.values()}) == 20
    assert first != await ids_of(2, prompts)


def lengths_of(answers: Seeded, number: int = 2000, budget: int = 8000) -> list[int]:
    body = {"sampling_params": {"max_new_tokens": budget}}
    requests = [read({**body, "input_ids": [n, n + 1]}) for n in range(number)]
    return [len(finished(request, answers(request)).output_ids) for request in requests]


@pytest.mark.parametrize("markers", [Markers(), Markers(50, 51, 52), Markers(None, 51, 52)])
def test_lengths_count_the_whole_answer(markers: Markers) -> None:
    assert set(lengths_of(Seeded(1, markers, range(40, 60), (9, 9)), 50)) == {9}
    assert set(lengths_of(Seeded(1, markers, range(40, 60), (4, 6)), 200)) == {4, 5, 6}


def test_log_normal_lengths_have_their_median_and_spread() -> None:
    lengths = sorted(lengths_of(Seeded(1, lengths=LogNormal(200, 1.0))))
    assert 180 < lengths[1000] < 220
    assert 200 * 2.2 < lengths[1683] < 200 * 3.3  # one sigma up: e times the median
    assert 200 * 0.3 < lengths[317] < 200 * 0.46
    assert lengths[-1] > 2000


def test_log_normal_lengths_are_cut_at_the_budget() -> None:
    assert max(lengths_of(Seeded(1, lengths=LogNormal(200, 1.0)), budget=300)) == 300


@pytest.mark.parametrize(("tail", "opens", "closes"), [([7], 1, 1), ([50], 0, 1), ([50, 9], 0, 1), ([50, 51], 0, 0)])
async def test_seeded_answers_take_a_think_block_from_the_prompt(
    client: Any, tail: list[int], opens: int, closes: int
) -> None:
    markers = Markers(open_id=50, close_id=51, end_id=52)
    async with FakeServer(Seeded(3, markers, range(40, 60))) as fake:
        _, body = await client.generate(fake.url, [1, 2, *tail])
    ids = body["output_ids"]
    assert (ids.count(50), ids.count(51), ids.count(52)) == (opens, closes, 1)
    assert ids[-1] == 52
    assert ids[0] == 50 or not opens


async def test_a_script_by_prompt_answers_500_beyond_it(client: Any) -> None:
    async with FakeServer(by_prompt({(1, 2): [8, 9], (3,): [7]})) as fake:
        assert (await client.generate(fake.url, [1, 2]))[1]["output_ids"] == [8, 9]
        assert (await client.generate(fake.url, [3]))[1]["output_ids"] == [7]
        assert (await client.generate(fake.url, [4]))[0] == 500


async def test_the_log_tells_what_was_asked_and_sent(client: Any) -> None:
    async with FakeServer(in_order([[8, 9]])) as fake:
        await client.generate(fake.url, PROMPT, rid="one", temperature=0)
        await client.generate(fake.url, [])
        _, log = await client.ask("GET", f"{fake.url}/fake/log")
        _, stats = await client.ask("GET", f"{fake.url}/fake/stats")
    assert [entry["number"] for entry in log] == [1, 2]
    assert (log[0]["rid"], log[0]["input_ids"], log[0]["output_ids"]) == ("one", PROMPT, [8, 9])
    assert log[0]["sampling_params"]["temperature"] == 0
    assert log[0]["started_at"] <= log[0]["running_at"] <= log[0]["ended_at"]
    assert log[1]["running_at"] is None
    assert (log[1]["status"], log[1]["output_ids"]) == (400, None)
    assert stats == {"generate": 2, "in_flight": 0, "faults": {}, "statuses": {"200": 1, "400": 1}}


async def test_the_log_is_told_by_fields_and_from_a_number_on(client: Any) -> None:
    async with FakeServer(in_order([[8, 9]])) as fake:
        for n in range(4):
            await client.generate(fake.url, PROMPT, rid=f"r{n}")
        _, page = await client.ask("GET", f"{fake.url}/fake/log?fields=rid,output_ids&after=2")
        status, refused = await client.ask("GET", f"{fake.url}/fake/log?fields=rid,nonsense")
    assert page == [{"rid": "r2", "output_ids": [8, 9]}, {"rid": "r3", "output_ids": [8, 9]}]
    assert (status, "nonsense" in refused["error"]["message"]) == (400, True)


async def test_the_log_tells_waiting_from_running(client: Any) -> None:
    async with FakeServer(card=Card("smol", "0.5.23", slots=2), latency=Latency(first_s=0.05)) as fake:
        await asyncio.gather(*(client.generate(fake.url, [n]) for n in range(6)))
    spans = [(entry.running_at or 0, entry.ended_at or 0) for entry in fake.log]
    began = sorted(running_at for running_at, _ in spans)
    # With two slots the third begins when one of the first two has ended.
    assert all(later - earlier >= 0.04 for earlier, later in zip(began, began[2:], strict=False))
    assert all(entry.started_at < (entry.running_at or 0) for entry in fake.log)


async def test_tokenize_is_there_only_with_a_tokenizer(client: Any) -> None:
    async with FakeServer() as bare, FakeServer(tokenizer=lambda body: [len(body["prompt"])]) as able:
        assert (await client.ask("POST", f"{bare.url}/tokenize", json={"prompt": "hi"}))[0] == 404
        _, page = await client.ask("POST", f"{able.url}/tokenize", json={"prompt": "hi"})
    assert page == {"tokens": [2], "count": 1, "max_model_len": 8192}


@pytest.mark.parametrize(
    ("given", "lengths"),
    [([], (8, 64)), (["--lengths", "5", "5"], (5, 5)), (["--tokens-lognormal", "256", "1"], LogNormal(256, 1.0))],
)
def test_lengths_on_the_command_line(given: list[str], lengths: object) -> None:
    assert fake_command._lengths(fake_command._parser().parse_args(given)) == lengths


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_a_process_it_gives_the_same_ids_and_ends_quietly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "draftmill.serving.fake", "--seed", "7", "--fault", "id_out_of_range=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        data = json.dumps({"input_ids": PROMPT}).encode()
        request = urllib.request.Request(f"{url}/generate", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            ids = json.load(response)["output_ids"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert ids[0] == 10_000_000
    assert ids[1:] == seeded_by_hand(7, PROMPT)[1:]


def read(body: dict[str, Any]) -> GenerateRequest:
    request = read_generate(json.dumps(body).encode(), is_json=True, limits=Limits(8192))
    assert isinstance(request, GenerateRequest)
    return request


def seeded_by_hand(seed: int, prompt: list[int]) -> list[int]:
    return list(Seeded(seed)(read({"input_ids": prompt})).output_ids)
