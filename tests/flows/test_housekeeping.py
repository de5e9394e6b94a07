"""Compact, gc and the card around real runs: no row is lost, none asked twice, and `datasets` reads what is listed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tasks.seal
from draftmill.dataset.card import card_state
from draftmill.dataset.commit import commit as commit_change
from draftmill.dataset.gc import garbage, remove
from draftmill.dataset.housekeeping import collect_garbage, compact_dataset
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.verify import verify
from draftmill.errors import DatasetError
from draftmill.serving.fake import FakeServer, Latency

TEN = [f"prompt {n}" for n in range(10)]
CANARY = 1

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}!<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def collect_all(dataset: str, **options: Any) -> set[str]:
    found = collect_garbage(dataset, delete=True, keep=1, grace=timedelta(0), **options)
    return {entry.path.split("/")[0] for entry in found.entries}


def loaded(dataset: str, cache: Path) -> list[dict[str, Any]]:
    import datasets

    datasets.disable_progress_bars()
    return list(datasets.load_dataset(dataset, cache_dir=str(cache), split="train"))


async def test_a_kill_then_compacted_then_another_template(
    mill: Any,
    fake_server: Callable[..., FakeServer],
    start_run: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mill.prompts([f"prompt {n}" for n in range(24)])
    storage = open_storage(mill.dataset)
    async with fake_server(latency=Latency(first_s=0.1)) as fake:
        mill.url = fake.url
        process = await start_run(mill.recipe_file(engine__in_flight=4))
        while len(fake.log) < 12:
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        assert mill.manifest is None
        await mill.refresh()
        first = mill.rows()
        compacted = await asyncio.to_thread(compact_dataset, mill.dataset)
        assert (compacted.objects_before, compacted.objects_after) == (6, 1)
        assert mill.rows() == first == loaded(mill.dataset, tmp_path / "cache")
        template = tmp_path / "template.jinja"
        template.write_text(TEMPLATE)
        data = await mill.refresh(model__chat_template=str(template))
    assert data["summary"]["rows"]["superseded"] == 24
    last = mill.rows()
    assert len(last) == 24
    assert {row["row_key"] for row in last}.isdisjoint(row["row_key"] for row in first)
    assert loaded(mill.dataset, tmp_path / "cache") == last
    assert len(storage.list("shards")) > len(mill.manifest.shards)
    assert card_state(storage, mill.manifest) == "current"


async def test_after_gc_nothing_is_asked_again(mill: Any, fake_server: Callable[..., FakeServer]) -> None:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        await mill.refresh(sampling__temperature=0.5)
        removed = collect_all(mill.dataset)
        assert removed >= {"completions", "prompts", "shards", "verdicts"}
        rows, before = mill.rows(), len(fake.log)
        data = await mill.refresh(sampling__temperature=0.5)
        assert (data["summary"]["requests"], data["summary"]["sealed"], len(fake.log)) == (0, False, before)
        mill.prompts([*TEN, "one more"])
        data = await mill.refresh(sampling__temperature=0.5)
        assert len(fake.log) - before - CANARY == 1
    assert (data["summary"]["rows"]["kept"], data["summary"]["rows"]["ok"], mill.manifest.version) == (10, 1, 3)
    assert mill.rows()[:10] == rows
    assert verify(open_storage(mill.dataset)).ok


async def test_compacted_while_a_run_is_in_progress(mill: Any, fake_server: Callable[..., FakeServer]) -> None:
    mill.prompts(TEN)
    async with fake_server(latency=Latency(first_s=0.3)) as fake:
        mill.url = fake.url
        await mill.refresh()
        before = len(fake.log)
        mill.prompts([f"new {n}" for n in range(8)] + TEN[3:])
        run = asyncio.create_task(mill.refresh(removed="drop", engine__in_flight=2))
        while len(fake.log) < before + CANARY + 3:
            await asyncio.sleep(0.02)
        compacted = await asyncio.to_thread(compact_dataset, mill.dataset)
        data = await run
    assert compacted.manifest is not None
    assert (compacted.manifest.version, data["summary"]["manifest"], data["summary"]["sealed"]) == (2, 3, True)
    assert sorted(row["prompt_id"] for row in mill.rows()) == sorted([f"new {n}" for n in range(8)] + TEN[3:])
    assert (data["summary"]["rows"]["dropped"], data["summary"]["requests"]) == (3, 8)
    assert verify(open_storage(mill.dataset)).ok


async def test_what_gc_takes_from_a_run_elsewhere_is_an_error_and_is_made_again(
    mill: Any, fake_server: Callable[..., FakeServer]
) -> None:
    """Without any grace time, as nobody should: the run's own objects go before it has sealed them."""
    mill.prompts(TEN)
    storage = open_storage(mill.dataset)
    async with fake_server(latency=Latency(first_s=0.3)) as fake:
        mill.url = fake.url
        await mill.refresh()
        mill.prompts([f"new {n}" for n in range(12)] + TEN)
        before = len(fake.log)
        run = asyncio.create_task(mill.refresh(engine__in_flight=2))
        taken = 0
        while not run.done():
            if len(fake.log) > before + CANARY + 5:
                found = await asyncio.to_thread(garbage, storage, now=datetime.now(UTC), grace=timedelta(0))
                taken += len((await asyncio.to_thread(remove, storage, found)).entries)
            await asyncio.sleep(0.05)
        assert taken > 0
        try:
            data = run.result()
        except DatasetError as error:
            data = {"error": str(error)}
        assert mill.manifest.version == 1 or verify(storage).ok
        if mill.manifest.version == 1:
            assert data["error"], data
        await mill.refresh()
        asked = [tuple(entry.input_ids) for entry in fake.log[before:]]
    assert sorted(row["prompt_id"] for row in mill.rows()) == sorted([f"new {n}" for n in range(12)] + TEN)
    assert len(set(asked)) == 12 + CANARY
    assert verify(storage).ok


async def test_a_run_taken_up_after_days_is_safe_from_another_machines_gc(
    mill: Any, fake_server: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uploads are receipts of two days ago: nothing of them is put again unless it is made young."""

    def gc_and_commit(storage: Storage, *arguments: Any) -> Any:
        found = garbage(storage, now=datetime.now(UTC))
        taken.extend(entry.path for entry in remove(storage, found).entries)
        return commit_change(storage, *arguments)

    def dies(*_: Any) -> None:
        raise RuntimeError("the machine is off")

    taken: list[str] = []
    mill.prompts(TEN[:4])
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        mill.prompts(TEN)
        monkeypatch.setattr(tasks.seal, "commit_change", dies)
        with pytest.raises(RuntimeError, match="off"):
            await mill.refresh()
        stamp = (datetime.now(UTC) - timedelta(days=2)).timestamp()
        for path in Path(mill.dataset).rglob("*.*"):
            os.utime(path, (stamp, stamp))
        unsealed = set(open_storage(mill.dataset).list("shards")) - {ref.path for ref in mill.manifest.shards}
        monkeypatch.setattr(tasks.seal, "commit_change", gc_and_commit)
        before = len(fake.log)
        data = await mill.refresh()
    assert (data["state"], len(fake.log) - before, len(mill.rows())) == ("Completed", 0, 10)
    assert unsealed
    assert unsealed.isdisjoint(taken)
    assert verify(open_storage(mill.dataset)).ok


async def test_a_lost_race_without_the_plans_objects_ends_in_words_and_costs_no_request(
    mill: Any, fake_server: Callable[..., FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compacted_and_collected(storage: Storage, *arguments: Any) -> Any:
        compact_dataset(mill.dataset)
        for path in storage.list("prompts"):
            storage.remove(path)
        return commit_change(storage, *arguments)

    mill.prompts(TEN[:6])
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        mill.prompts(TEN)
        with monkeypatch.context() as patched:
            patched.setattr(tasks.seal, "commit_change", compacted_and_collected)
            with pytest.raises(DatasetError, match="another run sealed meanwhile") as refused:
                await mill.refresh()
        assert "run again: what was generated is kept" in refused.value.remedy
        before = len(fake.log)
        data = await mill.refresh()
        assert (data["state"], data["summary"]["rows"]["resumed"], len(fake.log) - before) == ("Completed", 4, 0)
    assert len(mill.rows()) == 10
