"""A pilot: a sample is asked, sealed, and told of; the run behind it asks only for the others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from prefect.client.orchestration import get_client

from draftmill.errors import GateRefused
from draftmill.serving.answers import Card
from draftmill.serving.fake import FakeServer
from draftmill.serving.fake_answers import Markers, Seeded
from draftmill.serving.faults import Fault
from draftmill.serving.protocol import Limits
from flows.pilot import pilot
from tests.mill import MODEL

CANARY = 1

LAST_SECOND_S = 1.3
"""The journal commits every second; a commit on a busy disk takes a moment."""

SIXTY = [f"prompt {number} {'word ' * (number % 12)}" for number in range(60)]


async def run_pilot(mill, rows: int | None = None, **changes: Any) -> dict[str, Any]:
    known = {"gpus": changes.pop("gpus", None), "hidden_size": changes.pop("hidden_size", None)}
    state = await pilot(mill.recipe(**changes), rows=rows, **known, return_state=True)
    data = await state.aresult(raise_on_failure=False)
    if isinstance(data, BaseException):
        raise data
    return data | {"state": state.name, "message": state.message}


def asked(fake: FakeServer) -> Counter[tuple[int, ...]]:
    """Requests by prompt, canaries left out: those are asked in every run."""
    found = Counter(tuple(entry.input_ids) for entry in fake.log)
    return Counter({prompt: number for prompt, number in found.items() if prompt != tuple(fake.log[0].input_ids)})


async def test_a_pilot_and_then_the_run_ask_each_row_once(mill, fake_server) -> None:
    mill.prompts(SIXTY)
    async with fake_server() as fake:
        mill.url = fake.url
        data = await run_pilot(mill, 20, gpus=2, hidden_size=64)
        rows = data["summary"]["rows"]
        assert (data["state"], data["exit_code"]) == ("Completed", 0)
        assert (rows["generated"], rows["pending"], rows["planned"], len(mill.rows())) == (20, 40, 60, 20)
        assert len(asked(fake)) == 20
        after = await mill.refresh()
        assert (after["summary"]["rows"]["kept"], after["summary"]["requests"]) == (20, 40)
    assert set(asked(fake).values()) == {1}
    assert len({row["row_key"] for row in mill.rows()}) == 60
    estimate = data["estimate"]
    assert estimate["rows"] == {"asked": 20, "answered": 20, "missing": 60}
    assert estimate["gpus"] == 2
    assert (estimate["whole"]["rows"], estimate["left"]["rows"]) == (60, 40)
    real = sum(len(row["input_ids"]) - row["prompt_len"] for row in mill.rows())
    assert 0.7 * real < estimate["whole"]["tokens"]["low"] < estimate["whole"]["tokens"]["high"] < 1.4 * real
    whole_ids = sum(len(row["input_ids"]) for row in mill.rows())
    assert estimate["whole"]["hidden_bytes"]["middle"] == pytest.approx(64 * 4 * 2 * whole_ids, rel=0.2)
    assert "all 60 rows" in data["message"]
    json.dumps(data)


async def test_a_second_pilot_asks_other_rows_and_one_of_a_complete_dataset_none(mill, fake_server) -> None:
    mill.prompts(SIXTY[:30])
    async with fake_server() as fake:
        mill.url = fake.url
        await run_pilot(mill, 10)
        second = await run_pilot(mill, 10)
        assert (second["summary"]["rows"]["kept"], second["estimate"]["rows"]["missing"]) == (10, 20)
        everything = await run_pilot(mill)
        assert (everything["exit_code"], everything["summary"]["rows"]["pending"]) == (0, 0)
        assert everything["estimate"]["left"]["tokens"] == {"middle": 0.0, "low": 0.0, "high": 0.0}
        assert len(mill.rows()) == 30
    data = await run_pilot(mill)  # and needs no server
    assert (data["state"], data["exit_code"], data["estimate"]) == ("Completed", 0, None)
    assert data["summary"]["requests"] == 0
    assert "nothing is missing" in data["message"]
    assert set(asked(fake).values()) == {1}


async def test_a_pilot_that_was_stopped_goes_on_with_the_rows_it_had_chosen(mill, fake_server) -> None:
    mill.prompts(SIXTY)
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda number, request: Fault.HANG if number > CANARY + 5 else None
        stopped = asyncio.create_task(run_pilot(mill, 20))
        while sum(entry.status == 200 for entry in fake.log) < CANARY + 5:
            await asyncio.sleep(0.01)
        await asyncio.sleep(LAST_SECOND_S)
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
        assert mill.manifest is None
        chosen = set(asked(fake))
        fake.rule = None
        data = await run_pilot(mill, 20)
        rows = data["summary"]["rows"]
        assert (rows["ok"], rows["resumed"], rows["generated"]) == (20, 5, 15)
        assert chosen <= {tuple(row["input_ids"][: row["prompt_len"]]) for row in mill.rows()}
        assert data["estimate"]["rows"]["answered"] == 20
        await mill.refresh()
    assert len({row["row_key"] for row in mill.rows()}) == 60


async def test_rows_that_fail_stay_for_the_next_run_and_are_told(mill, fake_server) -> None:
    mill.prompts(SIXTY)
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda number, request: Fault.ERROR_500 if number > CANARY + 15 else None
        data = await run_pilot(mill, 20, engine__retries=0)
        assert (data["state"], data["exit_code"]) == ("RowsMissing", 3)
        assert (data["summary"]["rows"]["failed"], data["estimate"]["left"]["rows"]) == (5, 45)
        assert data["estimate"]["verdicts"][1]["name"] == "request_failed"
        fake.rule = None
        await mill.refresh()
    assert len({row["row_key"] for row in mill.rows()}) == 60


def three_turns(word: str) -> list[dict[str, str]]:
    said = {"role": "assistant", "content": "what the source has"}
    texts = (word, f"{word} again", f"{word} for the last time")
    users = [{"role": "user", "content": text} for text in texts]
    return [users[0], said, users[1], said, users[2]]


def conversations(mill, history: str, shaped_folder) -> FakeServer:
    """Thirty, asked turn by turn, and a server for them, whose template keeps history this way."""
    lines = [json.dumps({"id": text, "messages": three_turns(text)}) for text in SIXTY[:30]]
    (mill.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    mill.changes["prompts__turns"] = "all"
    markers = Markers(end_id=2)
    if history == "rewrites":
        mill.changes["model__tokenizer"] = shaped_folder("qwen3", "Qwen-Qwen3-0.6B")
        markers = Markers(151667, 151668, 151645)
    card = Card(MODEL, "0.5.23", slots=4)
    answers = Seeded(seed=7, markers=markers, ordinary=range(1000, 40000), lengths=(8, 16))
    return FakeServer(answers, card=card, limits=Limits(2048, 163840), markers=markers)


@pytest.mark.parametrize("history", ["extends", "rewrites"])
async def test_a_conversation_is_asked_whole_and_once(mill, shaped_folder, history) -> None:
    async with conversations(mill, history, shaped_folder) as fake:
        mill.url = fake.url
        data = await run_pilot(mill, 12)
        assert data["exit_code"] == 0, data["summary"]
        assert data["summary"]["rows"]["ok"] == 12
        before = len(mill.rows())
        after = await mill.refresh()
    rows = 30 if history == "extends" else 90
    assert (before, len(mill.rows()), data["estimate"]["rows"]["missing"]) == (12, rows, rows)
    assert after["summary"]["rows"]["kept"] == 12
    assert set(asked(fake).values()) == {1}


async def test_a_pilot_that_the_gate_refuses_ends_with_its_error(mill) -> None:
    mill.prompts(SIXTY)
    with pytest.raises(GateRefused) as refused:
        await run_pilot(mill, 20)
    assert refused.value.exit_code == 4
    assert mill.manifest is None


async def test_rows_in_quarantine_are_told_and_are_its_exit_status(mill, fake_server) -> None:
    mill.prompts(SIXTY)
    async with fake_server() as fake:
        mill.url = fake.url
        data = await run_pilot(mill, 20, sampling__max_new_tokens=6, on_truncated="quarantine")
    assert (data["state"], data["exit_code"]) == ("PartialSuccess", 3)
    verdicts = {each["name"]: each for each in data["estimate"]["verdicts"]}
    assert verdicts["truncated"]["rows"] == data["summary"]["reasons"]["truncated"] > 0
    assert verdicts["truncated"]["low"] < verdicts["truncated"]["share"] < verdicts["truncated"]["high"]
    advice = {each["key"]: each for each in data["estimate"]["advice"]}
    assert advice["sampling.max_new_tokens"]["better"] == 12


async def test_every_variant_has_its_share(mill, fake_server) -> None:
    mill.prompts(SIXTY)
    variants = [{"name": "long", "share": 0.5}, {"name": "short", "share": 0.5, "sampling": {"max_new_tokens": 5}}]
    async with fake_server() as fake:
        mill.url = fake.url
        data = await run_pilot(mill, 20, variants=variants)
        assert {"all", "long", "short"} == set(data["estimate"]["lengths"])
        counts = Counter(row["variant"] for row in mill.rows())
        assert min(counts.values()) >= 7
        await mill.refresh(variants=variants)
    assert set(asked(fake).values()) == {1}


async def test_the_run_has_its_name_and_its_page(mill, fake_server) -> None:
    mill.prompts(SIXTY[:20])
    async with fake_server() as fake:
        mill.url = fake.url
        await run_pilot(mill, 10)
    async with get_client() as client:
        (page,) = [each for each in await client.read_artifacts() if each.key == "dataset-pilot"][-1:]
        runs = await client.read_flow_runs()
    assert "## What it takes" in page.data
    assert any(run.name == "pilot dataset v1" for run in runs)
