"""A run one can follow: what it is called, what its page and its log say, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas import FlowRun
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.client.schemas.sorting import FlowRunSort
from prefect.logging.handlers import APILogHandler

from draftmill.dataset.plan import CHUNKS_AT_MOST, rows_of_a_chunk
from draftmill.errors import GateRefused, RecipeError
from draftmill.progress import LogListener, listening
from draftmill.prompts.batches import slice_rows
from draftmill.serving.faults import Fault
from draftmill.serving.prefect_server import PrefectServer
from tasks import follow, tokenize_prompts
from tasks.ending import followed
from tasks.follow import Screen, about, following
from tasks.run_log import on_the_run_page

EIGHT = [f"prompt {n}" for n in range(8)]


async def newest_run(client: PrefectClient) -> FlowRun:
    (run,) = await client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)
    return run


async def artifact(client: PrefectClient, run: FlowRun, key: str) -> Any:
    of_run = ArtifactFilterFlowRunId(any_=[run.id])
    (found,) = await client.read_artifacts(
        artifact_filter=ArtifactFilter(flow_run_id=of_run, key=ArtifactFilterKey(any_=[key]))
    )
    return found


async def log_lines(client: PrefectClient, run: FlowRun, until: str) -> list[str]:
    """The run's page of logs, once it has a line with `until`: they come in batches, a moment later."""
    while True:
        found = await client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])))
        lines = [line.message for line in found]
        if any(until in line for line in lines):
            return lines
        await asyncio.sleep(0.3)


async def test_names_end_with_the_manifest_that_was_sealed(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake, get_client() as client:
        mill.url = fake.url
        names = []
        for run in (mill.refresh, mill.refresh, mill.rerun):
            await run()
            names.append((await newest_run(client)).name)
            assert (await artifact(client, await newest_run(client), "dataset-progress")).data == 100.0
        await mill.refresh(plan_only=True)
        names.append((await newest_run(client)).name)
    assert names == [
        "refresh dataset v1",
        "refresh dataset v1 unchanged",
        "rerun dataset v1 unchanged",
        "plan dataset v2",
    ]


async def test_the_page_ends_with_all_rows_and_the_servers(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake, get_client() as client:
        mill.url = fake.url
        await mill.refresh()
        page = await artifact(client, await newest_run(client), "dataset-progress")
    assert (page.type, page.data) == ("progress", 100.0)
    first, *rest = page.description.splitlines()
    assert first.startswith("ended: Completed: 8 new rows, manifest 1: 8 of 8 rows")
    (server,) = [line for line in rest if "127.0.0.1" in line]
    assert f"| {fake.url} | ok | 0 | 8 | 8 |" in server


async def test_the_page_is_brought_up_to_date_while_the_run_works(mill, fake_server, monkeypatch) -> None:
    monkeypatch.setattr(follow, "SHOW_EVERY_S", 0.05)
    mill.prompts(EIGHT)
    async with fake_server() as fake, get_client() as client:
        mill.url = fake.url
        seen: list[str] = []
        real = Screen.show

        async def show(self: Screen, follower: Any) -> None:
            await real(self, follower)
            if follower.dataset:
                seen.append(follower.page(time.monotonic())[1].splitlines()[0])

        monkeypatch.setattr(Screen, "show", show)
        await mill.refresh(engine__in_flight=2)
        assert (await artifact(client, await newest_run(client), "dataset-progress")).data == 100.0
    assert seen[-1].startswith("ended: Completed")
    assert len(set(seen)) > 1


async def test_a_line_a_chunk_reaches_the_page_once_and_none_a_row(mill, fake_server) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake, get_client() as client:
        mill.url = fake.url
        fake.rule = lambda number, request: Fault.ERROR_500 if number in (7, 8) else None
        options = {"engine__retries": 0, "engine__in_flight": 1}
        await mill.refresh(**options)
        run = await newest_run(client)
        lines = await log_lines(client, run, "chunk 2/2")
        fake.rule = None
        await mill.refresh(**options)
        state = (await client.read_flow_run(run.id)).state
        reasons = await artifact(client, run, "dataset-reasons")
        summary = await artifact(client, run, "dataset-summary")
    chunks = [line for line in lines if line.startswith("chunk ")]
    assert [line.split(" in ")[0] for line in sorted(chunks)] == [
        "chunk 1/2: 4 good; 4 requests",
        "chunk 2/2: 2 good, 2 failed; 4 requests",
    ]
    assert not any("prompt 1" in line for line in lines)
    assert state is not None
    assert (state.name, state.type.value) == ("RowsMissing", "FAILED")
    assert state.message.splitlines()[0].startswith("2 of 2 failed rows: ")
    assert "request_failed" in reasons.data
    assert "failed: asked again" in reasons.data
    assert "2 rows failed, most often: " in summary.data


async def test_a_chunk_that_an_earlier_run_finished_is_said_to_be_cached(mill, fake_server, caplog) -> None:
    mill.prompts(EIGHT)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
        for path in (mill.folder / "dataset" / "manifests").iterdir():
            path.unlink()  # nothing is sealed any more; the receipts stay
        caplog.set_level(logging.INFO, "draftmill.chunks")
        await mill.refresh()
    said = [record.message for record in caplog.records if record.message.startswith("chunk ")]
    assert sorted(line.split(" in ")[0] for line in said[-2:]) == [
        "chunk 1/2: cached, 4 good; 0 requests",
        "chunk 2/2: cached, 4 good; 0 requests",
    ]


async def test_a_refusal_is_a_state_of_its_name_and_the_command_line_gets_the_error(mill) -> None:
    mill.prompts(EIGHT)
    with pytest.raises(GateRefused) as refused:
        await mill.refresh()
    async with get_client() as client:
        run = await newest_run(client)
    assert run.state is not None
    assert (run.state.name, run.state.type.value) == ("GateRefused", "FAILED")
    first, _, *rest = run.state.message.splitlines()
    assert first == refused.value.headline
    assert "\n".join(rest) == refused.value.details
    assert "Flow run encountered" not in run.state.message
    assert run.name == "refresh dataset v1"


async def test_a_run_that_ends_before_its_first_stage_is_named_too(mill, monkeypatch) -> None:
    monkeypatch.setenv("MILL_TEST_TOKEN", str(mill.folder / "prompts.jsonl"))
    with pytest.raises(RecipeError):
        await mill.refresh()
    async with get_client() as client:
        state = (await newest_run(client)).state
    assert state is not None
    assert state.name == "RecipeError"
    assert "[MILL_TEST_TOKEN]" in state.message
    assert str(mill.folder) not in state.message


async def test_what_nobody_foresaw_is_a_failed_run_with_its_traceback_in_the_log(caplog) -> None:
    @followed
    async def body() -> Any:
        raise KeyError("what")

    state = await body()
    assert (state.name, state.message.splitlines()[0]) == ("Failed", "KeyError: 'what'")
    assert isinstance(state.data, KeyError)
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_a_prefect_server_that_is_away_costs_the_page_only(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = asyncio.Event()

    async def show(self: Screen, follower: Any) -> None:
        tried.set()
        if how == "hangs":
            await asyncio.sleep(3600)
        raise ConnectionError("nobody there")

    monkeypatch.setattr(Screen, "show", show)
    monkeypatch.setattr(follow, "LAST_S", 0.01)
    with listening(LogListener()):
        async with following() as follower:
            about("refresh x", "/data/x")
            await tried.wait()
            follower.end("Completed", complete=True)
    assert not [task for task in asyncio.all_tasks() if "_show" in repr(task.get_coro())]


def test_the_log_handler_is_there_once_whatever_the_settings() -> None:
    logger = logging.getLogger("draftmill")
    logger.addHandler(APILogHandler())  # as PREFECT_LOGGING_EXTRA_LOGGERS=draftmill adds it
    on_the_run_page()
    on_the_run_page()
    assert sum(isinstance(handler, APILogHandler) for handler in logger.handlers) == 1
    assert logger.isEnabledFor(logging.INFO)
    logger.info("outside of a run: no page, and no warning")


OTHERS = 8
"""Task runs of a run beside those of slices and chunks: load, plan, gate, seal, page, report, rejudging."""


def num_slices(rows: int) -> int:
    number, cut = 0, 0
    while cut < rows:
        cut += slice_rows(number)
        number += 1
    return number


def num_task_runs(rows: int, slices: int) -> int:
    chunks = -(-rows // rows_of_a_chunk(rows, "auto"))
    return 3 * chunks + len(tokenize_prompts._parts([{}] * slices)) + OTHERS


def test_a_million_rows_are_under_a_thousand_task_runs() -> None:
    assert num_slices(1_000_000) == 93
    assert num_task_runs(1_000_000, num_slices(1_000_000)) <= 3 * CHUNKS_AT_MOST + 64 + 15 + OTHERS < 1000


@given(rows=st.integers(1, 20_000_000), chars=st.integers(1, 40_000))
def test_whatever_the_number_of_rows_and_their_length(rows: int, chars: int) -> None:
    by_length = rows * chars // 2**26  # an eighth of a terabyte of prompts and more
    assert num_task_runs(rows, max(num_slices(rows), by_length)) < 1200
    if by_length < 700:
        assert num_task_runs(rows, max(num_slices(rows), by_length)) < 1000


@given(st.integers(0, 2000), st.integers(0, 200))
def test_slices_stay_with_their_task_when_a_source_grows(number: int, more: int) -> None:
    slices = [{"path": str(n)} for n in range(number + more)]
    before, after = (tokenize_prompts._parts(found) for found in (slices[:number], slices))
    assert [ref for part in after for ref in part["prompts"]] == slices
    assert [part["prompts"] for part in before[:-1]] == [part["prompts"] for part in after[: max(0, len(before) - 1)]]


async def test_three_hundred_task_runs_are_all_in_the_ui_and_final(mill, fake_server, start_run, tmp_path) -> None:
    """On a server as we start it: its recorder's settings are what this is about."""
    mill.prompts([f"prompt {n}" for n in range(288)])
    server = PrefectServer(tmp_path / "prefect")
    await asyncio.to_thread(server.start)
    try:
        async with fake_server() as fake:
            mill.url = fake.url
            recipe = mill.recipe_file(chunk_rows=3, engine__in_flight=32)
            process = await start_run(recipe, environment=_environment(server))
            assert await process.wait() == 0, (mill.folder / "recipe.err").read_text()
        found = await asyncio.to_thread(_final_tasks, server, 3 * 96 + 7)
        assert len(found) == len(set(found)) == 3 * 96 + 7
        assert {f"{verb} chunk {n}/96" for verb in ("generate", "validate", "upload") for n in range(1, 97)} < set(
            found
        )
        (run,) = server.ask("POST", "/flow_runs/filter", {})
        assert run["name"] == "refresh dataset v1"
        lines = await asyncio.to_thread(_chunk_lines, server, run["id"])
        assert len(lines) == len(set(lines)) == 96
    finally:
        await asyncio.to_thread(server.stop)


def _environment(server: PrefectServer) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**own, **server.environment}


def _pages(server: PrefectServer, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while page := server.ask("POST", path, {**body, "limit": 200, "offset": len(found)}):
        found += page
    return found


def _final_tasks(server: PrefectServer, number: int) -> list[str]:
    """Names of the task runs once so many have ended: the server learns of them through events, a moment later."""
    while True:
        found = _pages(server, "/task_runs/filter", {})
        if len(found) >= number and all(each["state_name"] == "Completed" for each in found):
            return [each["name"] for each in found]
        time.sleep(0.5)


def _chunk_lines(server: PrefectServer, run: str) -> list[str]:
    found = _pages(server, "/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}})
    return [each["message"] for each in found if each["message"].startswith("chunk ")]
