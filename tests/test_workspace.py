"""What a run shares: the journal's tail goes to the dataset at the start, and no thread outlives the journal."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill import workspace
from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.errors import DatasetError
from draftmill.judging.structure import Structure
from draftmill.recipe_file import parse_recipe
from draftmill.records import Answer, Completion, Row, ServerReport, Thinking
from draftmill.rendering.prepare import Prepared
from draftmill.variants import DEFAULT
from draftmill.workspace import open_pool, open_workspace

STRUCTURE = Structure("plain", Thinking.NONE, (), (), (2,), (), (), (), 99, ())
REPORT = ServerReport("http://127.0.0.1:9", "e", None, "m", None, 64, 58, None, False, {})


def completed() -> Completion:
    row = Row("k" * 64, 0, "p", "id", "default", 0, ids_array("p", [1]), 8, None, "s")
    ids = ids_array("o", np.array([5, 2]))
    return Completion(row, Answer(ids, None, 1, 2, "stop", None, 2, "e", None, datetime(2026, 1, 1, tzinfo=UTC)))


def recipe(dataset: str) -> Any:
    data = {
        "dataset": dataset,
        "prompts": {"path": "unused"},
        "model": {"name": "m", "context_length": 64},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 8},
        "engine": {"urls": ["http://127.0.0.1:9"], "in_flight": 1},
    }
    return parse_recipe(data, origin="the test")


def variants(dataset: str) -> Any:
    return {DEFAULT: Prepared(recipe(dataset), STRUCTURE, ids_array("canary", [1]), "", {}, (), (), None)}


async def test_the_tail_of_an_earlier_run_is_uploaded_first(tmp_path: Path) -> None:
    dataset = str(tmp_path / "dataset")
    async with open_workspace(dataset) as space:
        space.journal.put(completed())
        await space.journal.flush()
        assert space.storage.list(completions.FOLDER) == []
    async with open_workspace(dataset) as space:
        assert len(space.storage.list(completions.FOLDER)) == 1
        assert space.journal.pending() == []


async def test_one_run_at_a_time_holds_a_dataset(tmp_path: Path) -> None:
    async with open_workspace(str(tmp_path / "dataset")):
        with pytest.raises(DatasetError):
            async with open_workspace(str(tmp_path / "dataset")):
                pass


async def test_parts_are_uploaded_while_rows_come_and_a_failure_is_only_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workspace, "PART_EVERY_S", 0.005)
    real, failures = completions.upload, [DatasetError("full", value="", expected="", remedy="")]

    def upload(*arguments: Any) -> int:
        if failures:
            raise failures.pop()
        return real(*arguments)

    dataset = str(tmp_path / "dataset")
    async with open_workspace(dataset) as space:
        monkeypatch.setattr(completions, "upload", upload)
        async with open_pool(recipe(dataset), variants(dataset), [REPORT], 1) as pool:
            assert workspace.pool() is pool
            space.journal.put(completed())
            while not space.storage.list(completions.FOLDER):
                await asyncio.sleep(0.005)
    assert "stay in the journal" in caplog.text


async def test_the_journal_waits_for_an_upload_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "PART_EVERY_S", 0.0)
    began, may_end = threading.Event(), threading.Event()
    real, done = completions.upload, []

    def slow(storage: Any, journal: Any) -> int:
        began.set()
        may_end.wait(timeout=60)
        number = real(storage, journal)
        done.append(number)
        return number

    dataset = str(tmp_path / "dataset")
    async with open_workspace(dataset) as space:
        monkeypatch.setattr(completions, "upload", slow)
        async with open_pool(recipe(dataset), variants(dataset), [REPORT], 1):
            space.journal.put(completed())
            await asyncio.to_thread(began.wait, 60)
            asyncio.get_running_loop().call_later(0.02, may_end.set)
        assert done  # before the pool is left, and so before the journal closes
        assert space.journal.pending() == []
