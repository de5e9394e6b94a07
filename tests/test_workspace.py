"""What a run shares: the journal's tail goes to the dataset at the start, and no thread outlives the journal."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill import workspace
from draftmill.arrays import ids_array
from draftmill.dataset import completions
from draftmill.dataset.local_objects import LocalObjects
from draftmill.dataset.objects import StorageFault
from draftmill.errors import DatasetError
from draftmill.judging.structure import Structure
from draftmill.recipe_file import parse_recipe
from draftmill.records import Answer, Completion, Row, ServerReport, Thinking
from draftmill.rendering.prepare import Prepared
from draftmill.variants import DEFAULT
from draftmill.workspace import in_thread, open_for_plan, open_pool, open_workspace

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


async def test_in_thread_is_the_function_with_its_context(tmp_path: Path) -> None:
    said = contextvars.ContextVar("said", default="nothing")
    async with open_for_plan(str(tmp_path / "dataset")):
        said.set("something")
        assert await in_thread(said.get) == "something"
        assert await in_thread(lambda one, two: (one, two), 1, 2) == (1, 2)
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)


async def test_a_storage_that_is_away_leaves_the_loop_its_own_threads(tmp_path: Path) -> None:
    back = threading.Event()
    async with open_for_plan(str(tmp_path / "dataset")):
        waiting = [asyncio.create_task(in_thread(back.wait, 60)) for _ in range(3 * workspace.THREADS)]
        try:
            # As aiohttp looks up the engine's host.
            assert await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("localhost", 80), 30)
            assert not any(task.done() for task in waiting)
        finally:
            back.set()
        assert all(await asyncio.gather(*waiting))


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], threading.Event]:
    """`away("read")`: from now on that is not answered; the event is set when somebody has asked."""

    def away(name: str) -> threading.Event:
        asked = threading.Event()

        def nobody(*_: object) -> None:
            asked.set()
            raise StorageFault("away", value="503", expected="", remedy="", transient=True)

        monkeypatch.setattr(LocalObjects, name, nobody)
        return asked

    return away


async def test_who_leaves_the_workspace_does_not_sit_through_an_outage(
    tmp_path: Path, away: Callable[[str], threading.Event]
) -> None:
    async with open_workspace(str(tmp_path / "dataset")) as space:
        asked = away("read")
        reading = asyncio.create_task(in_thread(space.storage.read, "a"))
        await asyncio.to_thread(asked.wait, 60)
    with pytest.raises(DatasetError, match="away"):
        await reading


async def test_a_run_that_fails_does_not_wait_for_an_upload_in_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: Callable[[str], threading.Event]
) -> None:
    monkeypatch.setattr(workspace, "PART_EVERY_S", 0.0)
    dataset = str(tmp_path / "dataset")

    async def fails() -> None:
        async with open_workspace(dataset) as space:
            asked = away("create")
            async with open_pool(recipe(dataset), variants(dataset), [REPORT], 1):
                space.journal.put(completed())
                await asyncio.to_thread(asked.wait, 60)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    monkeypatch.undo()
    async with open_workspace(dataset) as space:
        assert len(space.storage.list(completions.FOLDER)) == 1  # what could not be uploaded was in the journal


WAITS_FOR_STORAGE = """
import asyncio, signal
from draftmill.workspace import open_for_plan, in_thread

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with open_for_plan("s3://bucket/data"):
        pass

class Told:
    def stage(self, text): print(text, flush=True)

from draftmill import progress
with progress.listening(Told()):
    try:
        asyncio.run(main())
    except asyncio.CancelledError:
        print("cancelled", flush=True)
"""


def test_sigterm_ends_a_process_whose_threads_wait_for_the_storage(tmp_path: Path) -> None:
    environment = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "DRAFTMILL_STATE": str(tmp_path),
        "PYTHONPATH": str(Path(workspace.__file__).parents[1]),
    }
    script = "import draftmill.dataset.storage as storage; storage.START_S = 3600\n" + WAITS_FOR_STORAGE
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        try:
            assert "does not answer" in run.stdout.readline()
            run.send_signal(signal.SIGTERM)
            rest, _ = run.communicate(timeout=60)
        finally:
            run.kill()
    assert (rest.strip(), run.returncode) == ("cancelled", 0)
