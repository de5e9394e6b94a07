"""What can go wrong between an answer and the manifest, and that the next run mends it without asking again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tasks.receipts
import tasks.upload
from draftmill.dataset.journal import Journal, journal_path
from draftmill.errors import DatasetError, SourceError
from draftmill.serving.faults import Fault
from tasks.receipts import Receipt

EIGHT = [f"prompt {n}" for n in range(8)]
CANARY = 1


async def sealed(mill, fake_server, **changes: Any) -> int:
    """A complete run; the requests it made."""
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(**changes)
        return len(fake.log) - CANARY


async def test_answered_but_never_sealed(mill, fake_server) -> None:
    """Killed just before the manifest: everything is there but the commit. No request, and no server is needed."""
    await sealed(mill, fake_server)
    rows = sorted(row["row_key"] for row in mill.rows())
    shutil.rmtree(Path(mill.dataset) / "manifests")
    data = await mill.refresh()
    assert (data["state"], data["summary"]["requests"], data["summary"]["rows"]["resumed"]) == ("Completed", 0, 8)
    assert sorted(row["row_key"] for row in mill.rows()) == rows


async def test_a_shard_that_was_damaged_before_its_seal_is_made_again_once_removed(mill, fake_server) -> None:
    """Same size, other bytes: the receipt still holds, and the commit does not take it."""
    await sealed(mill, fake_server)
    rows = sorted(tuple(row["input_ids"]) for row in mill.rows())
    shutil.rmtree(Path(mill.dataset) / "manifests")
    shard = min(Path(mill.dataset, "shards").iterdir())
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(DatasetError, match=shard.name):
        await mill.refresh()
    assert mill.manifest is None
    shard.unlink()
    assert (await mill.refresh())["summary"]["requests"] == 0
    assert sorted(tuple(row["input_ids"]) for row in mill.rows()) == rows
    assert shard.read_bytes() == whole


async def test_from_the_dataset_alone_on_another_machine(mill, fake_server, monkeypatch, tmp_path) -> None:
    """No journal, no receipts, no manifest: the completions in the dataset are enough."""
    await sealed(mill, fake_server)
    for folder in ("manifests", "shards", "prompts", "verdicts"):
        shutil.rmtree(Path(mill.dataset) / folder)
    monkeypatch.setenv("DRAFTMILL_STATE", str(tmp_path / "another-machine"))
    data = await mill.refresh()
    assert (data["summary"]["requests"], len(mill.rows())) == (0, 8)


async def test_an_upload_that_fails_costs_its_chunk_a_run_and_no_request(mill, fake_server, monkeypatch) -> None:
    store: Callable[[str, str], Receipt] = tasks.upload._store
    failures = iter([True])

    def fails_once(completions: str, verdicts: str) -> Receipt:
        if next(failures, False):
            raise DatasetError("the storage is away", value="put", expected="an answer", remedy="run again")
        return store(completions, verdicts)

    monkeypatch.setattr(tasks.upload, "_store", fails_once)
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        data = await mill.refresh()
        assert (data["state"], data["exit_code"], len(mill.rows())) == ("RowsMissing", 1, 4)
        assert data["summary"]["rows"]["pending"] == 4
        assert "the storage is away" in data["error"]
    data = await mill.refresh()
    assert (data["state"], data["summary"]["requests"], len(mill.rows())) == ("Completed", 0, 8)


async def test_a_storage_fault_while_a_receipt_is_checked_costs_only_its_chunk(mill, fake_server, monkeypatch) -> None:
    await sealed(mill, fake_server)
    shutil.rmtree(Path(mill.dataset) / "manifests")
    holds, calls = tasks.receipts._holds, iter(range(100))

    def away(name: str, receipt: Receipt) -> bool:
        if name == "generate" and next(calls) == 0:
            raise DatasetError("the storage is away", value="size", expected="an answer", remedy="run again")
        return holds(name, receipt)

    monkeypatch.setattr(tasks.receipts, "_holds", away)
    data = await mill.refresh()
    assert (data["exit_code"], len(mill.rows()), data["summary"]["rows"]["pending"]) == (1, 4, 4)


async def test_a_receipt_of_another_shape_is_made_again(mill, fake_server) -> None:
    await sealed(mill, fake_server)
    folder = tasks.receipts._receipts_folder()
    for path in folder.glob("*-v1-*"):
        stored = json.loads(path.read_text())
        stored["result"] = "{}"
        path.write_text(json.dumps(stored))
    data = await mill.refresh()
    assert (data["state"], data["summary"]["rows"]["kept"]) == ("Completed", 8)


async def test_objects_that_a_receipt_names_and_somebody_removed_are_made_again(mill, fake_server) -> None:
    await sealed(mill, fake_server)
    shutil.rmtree(Path(mill.dataset) / "prompts")
    data = await mill.refresh()
    assert (data["state"], data["summary"]["rows"]["kept"]) == ("Completed", 8)


async def test_resumed_rows_have_the_present_runs_columns(mill, fake_server) -> None:
    await sealed(mill, fake_server)
    assert all(row["messages"] for row in mill.rows())
    shutil.rmtree(Path(mill.dataset) / "manifests")
    data = await mill.refresh(keep_messages=False)
    assert data["summary"]["requests"] == 0
    assert [row["messages"] for row in mill.rows()] == [None] * 8


async def test_a_larger_budget_asks_resumed_rows_that_were_cut(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(sampling__max_new_tokens=5)
        cut = sum(row["finish_reason"] == "length" for row in mill.rows())
        assert 0 < cut < 8
        shutil.rmtree(Path(mill.dataset) / "manifests")
        before = len(fake.log)
        await mill.refresh(sampling__max_new_tokens=32)
        assert len(fake.log) - before - CANARY == cut
    assert all(row["finish_reason"] == "stop" for row in mill.rows())


async def test_a_temperature_that_comes_back_asks_nothing(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        first = sorted(row["row_key"] for row in mill.rows())
        await mill.refresh(sampling__temperature=0.5)
    data = await mill.refresh(chunk_rows=3)
    assert data["summary"]["requests"] == 0
    assert sorted(row["row_key"] for row in mill.rows()) == first


async def test_a_bad_night_takes_no_good_row_away(mill, fake_server) -> None:
    """New sampling, and every answer is bad: the old rows stay until good ones are in."""
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        old = sorted(row["row_key"] for row in mill.rows())
        fake.rule = lambda number, request: Fault.NO_END if number > 9 + CANARY else None
        data = await mill.refresh(sampling__temperature=0.5)
    assert (data["summary"]["rows"]["quarantined"], data["summary"]["rows"]["carried"]) == (8, 8)
    assert sorted(row["row_key"] for row in mill.rows()) == old


async def test_when_every_row_fails_the_numbers_are_those_of_the_dataset(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        fake.rule = lambda number, request: Fault.ERROR_500 if number > 9 + CANARY else None
        data = await mill.refresh(sampling__temperature=0.5, engine__retries=0)
    rows = data["summary"]["rows"]
    assert (rows["failed"], rows["superseded"], rows["carried"], len(mill.rows())) == (8, 0, 8, 8)
    assert data["summary"]["sealed"] is False


async def test_prompts_that_cannot_be_sent_at_all_are_an_error(mill, fake_server) -> None:
    await sealed(mill, fake_server)
    with pytest.raises(SourceError, match="none of the prompts can be sent"):
        await mill.refresh(model__context_length=40, sampling__max_new_tokens=32, prompts__min_room=32)
    assert len(mill.rows()) == 8


async def test_a_plan_while_a_run_holds_the_journal(mill, fake_server) -> None:
    await sealed(mill, fake_server)
    mill.prompts([*EIGHT, "one more"])
    with Journal(journal_path(mill.dataset)):
        data = await mill.refresh(plan_only=True)
        assert (data["state"], data["summary"]["rows"]["generated"]) == ("Planned", 1)
        with pytest.raises(DatasetError):
            await mill.refresh()


async def test_rerun_judges_by_the_present_rules_and_says_what_moved(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(sampling__max_new_tokens=5)
        cut = sum(row["finish_reason"] == "length" for row in mill.rows())
        data = await mill.rerun(sampling__max_new_tokens=5, on_truncated="quarantine")
        rows = data["summary"]["rows"]
        assert (data["exit_code"], data["summary"]["requests"], rows["rejudged"]) == (3, 0, cut)
        assert (len(mill.rows()), len(mill.rows("quarantine"))) == (8 - cut, cut)
        data = await mill.rerun(
            generate=True, reasons=["truncated"], sampling__max_new_tokens=32, on_truncated="quarantine"
        )
        assert (data["state"], data["summary"]["rows"]["ok"]) == ("Completed", cut)
    assert (len(mill.rows()), len(mill.rows("quarantine"))) == (8, 0)


async def test_rerun_alone_needs_neither_server_nor_source(mill, fake_server) -> None:
    await sealed(mill, fake_server)
    (mill.folder / "prompts.jsonl").unlink()
    data = await mill.rerun()
    assert (data["state"], data["summary"]["sealed"], data["summary"]["rows"]["kept"]) == ("Completed", False, 8)
    assert (data["attempts"], data["summary"]["requests"]) == ({"0": 8}, 0)


async def test_rerun_without_its_source_seals_nothing_half_way(mill, fake_server) -> None:
    await sealed(mill, fake_server, sampling__max_new_tokens=5)
    (mill.folder / "prompts.jsonl").unlink()
    with pytest.raises(Exception, match=r"prompts\.jsonl"):
        await mill.rerun(generate=True, sampling__max_new_tokens=5, on_truncated="quarantine")
    assert mill.manifest.version == 1


async def test_no_secret_reaches_the_dataset(mill, fake_server, monkeypatch) -> None:
    secret = "sk-very-secret-key"
    monkeypatch.setenv("MILL_TEST_KEY", secret)
    await sealed(mill, fake_server, engine__api_key_env="MILL_TEST_KEY")
    for path in Path(mill.dataset).rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()
    for path in tasks.receipts._receipts_folder().glob("*"):
        assert secret not in path.read_text()
