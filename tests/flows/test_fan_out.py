"""A fan-out whose partitions are runs of this process: what comes together at the end, and what is told of it."""

from __future__ import annotations

import asyncio
import sys
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed, Running

import tasks.generated
import tasks.partition
import tasks.partition_report
import tasks.partition_runs
import tasks.partitions
import tasks.watched
from draftmill.dataset.journal import Journal, journal_path, journals
from draftmill.dataset.partition_objects import put_report, read_report
from draftmill.dataset.schema import table_completions
from draftmill.dataset.storage import Storage, open_storage
from draftmill.errors import DatasetError
from draftmill.generation.night import NO_END
from draftmill.generation.partitions import Silence
from draftmill.reporting.verification import verify_dataset
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.faults import Fault
from draftmill.serving.protocol import GenerateRequest
from draftmill.workspace import in_thread, open_for_plan, open_partition, workspace
from flows.fan_out import fan_out
from flows.partition import partition
from tests.flows.test_continue import NUM_IDS, Speaker, answers_of
from tests.flows.test_turns import Case, answered, spans, three_turns, user

ROWS = 24


class Here:
    """In place of workers. `parameters`: what each run was started with; `dies`: those, from 1, that end at once and
    without a word."""

    def __init__(self) -> None:
        self.parameters: list[dict[str, Any]] = []
        self.dies: set[int] = set()
        self.runs: dict[Any, asyncio.Task[Any]] = {}

    async def start(self, name: str, *, parameters: dict[str, Any], flow_run_name: str, timeout: float) -> Any:
        self.parameters.append(parameters)
        number = len(self.parameters)
        run = asyncio.create_task(self._dead() if number in self.dies else self._run(parameters))
        found = SimpleNamespace(id=uuid4())
        self.runs[found.id] = run
        return found

    async def _dead(self) -> str:
        return "Crashed"

    async def _run(self, parameters: dict[str, Any]) -> str:
        return str((await partition(**parameters, return_state=True)).name)

    async def watch(self, partitions: Any, *, night: Any, to_ask: int) -> None:
        for each in partitions:
            each.state, each.over = await self.runs[each.run], True
            each.report = await in_thread(read_report, workspace().storage, each.path) or each.report


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, mill: Any) -> Here:
    """`mill.refresh` is a fan-out to two partitions in this process."""
    found = Here()
    monkeypatch.setattr(tasks.partition_runs, "arun_deployment", found.start)
    monkeypatch.setattr(tasks.partitions, "watch", found.watch)

    async def refresh(*, partitions: int = 2, again: Any = (), until: str | None = None, **changes: Any) -> Any:
        recipe = mill.recipe(**changes)
        state = await fan_out(recipe, partitions=partitions, again=list(again), until=until, return_state=True)
        return await mill._data(state)

    monkeypatch.setattr(mill, "refresh", refresh, raising=False)
    return found


def spared(fake: FakeServer, request: GenerateRequest) -> bool:
    """The gates' canaries, whenever they come."""
    return list(request.prompt_ids) == fake.log[0].input_ids


def rows_of(data: dict[str, Any]) -> dict[str, int]:
    return {name: number for name, number in data["summary"]["rows"].items() if number}


async def test_the_numbers_are_those_of_one_run(mill, fake_server, here) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(slots=8) as fake:
        mill.url = fake.url
        data = await mill.refresh(engine__in_flight=5)
        assert (data["state"], rows_of(data)) == ("Completed", {"planned": ROWS, "generated": ROWS, "ok": ROWS})
        assert (data["summary"]["requests"], data["summary"]["retries"]) == (ROWS, 0)
        assert data["summary"]["tokens"]["output"] == sum(
            len(row["input_ids"]) - row["prompt_len"] for row in mill.rows()
        )
        assert data["summary"]["chunks"] == {"total": 6, "cached": 0, "run": 6, "failed": 0}
        again = await mill.refresh()
    assert [each["recipe"]["engine"]["in_flight"] for each in here.parameters] == [3, 2]
    assert (again["state"], rows_of(again)) == ("Completed", {"planned": ROWS, "kept": ROWS})
    assert mill.manifest.version == 1
    assert mill.manifest.recipe["engine"]["in_flight"] == 5
    assert [report["url"] for report in mill.manifest.provenance["servers"]] == [fake.url]
    assert not verify_dataset(mill.dataset).faults
    assert not open_storage(mill.dataset).list("partitions")
    assert [path.name for path in journals(mill.dataset)] == ["journal.sqlite"]


async def test_rows_that_failed_are_named_as_the_partition_heard_it(mill, fake_server, here) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])

    async with fake_server(slots=8) as fake:
        mill.url = fake.url

        def some(number: int, request: GenerateRequest) -> Fault | None:
            return Fault.ERROR_500 if sum(request.prompt_ids) % 5 == 0 and not spared(fake, request) else None

        fake.rule = some
        data = await mill.refresh(engine__retries=0)
        failed = sum(entry.status == 500 for entry in fake.log)
        assert failed, "the rule meets nobody"
        rows = {"planned": ROWS, "generated": ROWS - failed, "failed": failed, "ok": ROWS - failed}
        assert (data["state"], data["exit_code"], rows_of(data)) == ("RowsMissing", 3, rows)
        assert data["summary"]["requests"] == ROWS
        assert len(mill.manifest.failed) == failed
        assert all("500" in row["detail"] for row in mill.manifest.failed)
        assert len(here.parameters) == 2, "rows that had their tries are not dealt again"
        fake.rule = None
        data = await mill.refresh()
        assert (data["state"], data["summary"]["requests"]) == ("Completed", failed)
    assert len({row["row_key"] for row in mill.rows()}) == ROWS


async def test_a_dead_partitions_rows_are_dealt_once_more(mill, fake_server, here) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    here.dies = {2}
    async with fake_server(slots=8) as fake:
        mill.url = fake.url
        data = await mill.refresh()
    assert (data["state"], rows_of(data)) == ("Completed", {"planned": ROWS, "generated": ROWS, "ok": ROWS})
    assert [(each["number"], each["total"]) for each in here.parameters] == [(1, 2), (2, 2), (1, 1)]
    assert here.parameters[2]["recipe"]["engine"]["in_flight"] == 8


async def test_when_all_die_what_there_is_is_sealed_and_the_run_names_them(mill, fake_server, here) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    here.dies = {2, 3}
    async with fake_server(slots=8) as fake:
        mill.url = fake.url
        data = await mill.refresh()
        assert (data["state"], data["exit_code"]) == ("RowsMissing", 5)
        assert rows_of(data) == {"planned": ROWS, "generated": 12, "pending": 12, "ok": 12}
        assert "partition 2/2 of dataset: Crashed" in data["error"]
        here.dies = set()
        data = await mill.refresh()
    assert rows_of(data) == {"planned": ROWS, "kept": 12, "generated": 12, "ok": 12}


async def test_rows_in_a_dead_partitions_journal_are_not_asked_again(mill, fake_server, here) -> None:
    """As after a SIGKILL on this machine: committed there, and in no part yet."""
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server(slots=8) as fake:
        mill.url = fake.url
        await mill.refresh(prompts__limit=ROWS // 2)
        storage = open_storage(mill.dataset)
        parts = storage.list("completions")
        other = type(mill)(mill.folder, url=fake.url, place=str(mill.folder / "other"))
        with Journal(journal_path(other.dataset, "partition-7")) as journal:
            for part in parts:
                for completion in table_completions(storage.read_table(part)):
                    journal.put(completion)
        mill.place = other.dataset
        data = await mill.refresh()
        assert data["summary"]["requests"] == ROWS - ROWS // 2
    assert rows_of(data) == {"planned": ROWS, "resumed": 12, "generated": 12, "ok": ROWS}
    assert not any("partition" in path.name for path in journals(mill.dataset))


async def test_a_breaker_stops_the_run_with_its_own_words_and_no_second_round(mill, fake_server, here) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server() as fake:
        mill.url = fake.url
        fake.rule = lambda _, request: None if spared(fake, request) else Fault.ERROR_500
        changes = {"engine__retries": 0, "engine__in_flight": 2, "breaker": {"share": 0.5, "window": 4}}
        data = await mill.refresh(**changes)
    assert (data["state"], data["exit_code"]) == ("RowsMissing", 5)
    assert "the breaker stopped the run" in data["error"]
    assert len(here.parameters) == 2
    rows = data["summary"]["rows"]
    assert rows["failed"] + rows["pending"] == ROWS


@pytest.mark.parametrize("name", ["extends", "rewrites"])
async def test_turns_are_asked_as_in_one_run(mill, here, tmp_path_factory, name) -> None:
    case = Case(mill, name, tmp_path_factory.mktemp("tokenizer"))
    case.prompts(*(three_turns(f"word {n}") for n in range(5)), user("one turn"))
    async with case.server() as fake:
        mill.url = fake.url
        data = await mill.refresh(chunk_rows=3)
    assert len(here.parameters) == 2
    assert (data["state"], data["summary"]["requests"]) == ("Completed", 16)
    assert spans(mill.rows()) == answered(fake)
    assert data["summary"]["tokens"]["output"] == sum(len(ids) for _, ids in spans(mill.rows()))


async def test_answers_in_parts_are_asked_on_as_in_one_run(mill, fake_server, here) -> None:
    speaker = Speaker()
    mill.prompts([f"prompt {n}" for n in range(6)])
    settings = {"on_truncated": "continue", "continue_times": 4, "sampling__max_new_tokens": 16, "chunk_rows": 2}
    async with fake_server(speaker) as fake:
        mill.url = fake.url
        data = await mill.refresh(**settings)
    assert (data["state"], rows_of(data)) == ("Completed", {"planned": 6, "generated": 6, "ok": 6})
    assert data["summary"]["requests"] == 18
    assert data["summary"]["tokens"]["output"] == 6 * NUM_IDS
    assert all(speaker.said[prompt] == answer for prompt, answer in answers_of(mill.rows()).items())


async def test_another_tokenizer_on_a_machine_refuses_the_share(mill, fake_server, here, monkeypatch) -> None:
    mill.prompts([f"prompt {n}" for n in range(4)])
    real = tasks.partition.how_rendered
    monkeypatch.setattr(tasks.partition, "how_rendered", lambda variants: {**real(variants), "renders": "otherwise"})
    async with fake_server() as fake:
        mill.url = fake.url
        data = await mill.refresh()
    assert data["state"] == "RowsMissing"
    assert "this machine reads the model's tokenizer" in data["error"]
    assert rows_of(data) == {"planned": 4, "pending": 4}
    assert mill.manifest is None


async def test_a_slow_report_does_not_come_behind_the_last(mill, fake_server, here, monkeypatch) -> None:
    mill.prompts([f"prompt {n}" for n in range(4)])
    ends: list[bool] = []

    def slow(storage: Any, path: str, report: Any) -> None:
        if not report.ended:
            time.sleep(1)
        put_report(storage, path, report)
        ends.append(report.ended)

    monkeypatch.setattr(tasks.partition_report, "put_report", slow)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(partitions=1)
    assert ends == [False, True]


async def test_all_failed_rows_are_counted_however_few_a_receipt_names(mill, fake_server, here) -> None:
    mill.prompts([f"prompt {n}" for n in range(60)])
    speaker = Speaker()
    settings = {"on_truncated": "continue", "continue_times": 4, "sampling__max_new_tokens": 16}
    settings |= {"chunk_rows": 30, "engine__retries": 0, "breaker": {"share": 1.0, "window": 1000}}
    async with fake_server(speaker) as fake:
        mill.url = fake.url

        def second_part_fails(number: int, request: GenerateRequest) -> Fault | None:
            late = not spared(fake, request) and speaker.so_far(request.prompt_ids) == 32
            return Fault.ERROR_500 if late else None

        fake.rule = second_part_fails
        data = await mill.refresh(**settings)
        failed = sum(entry.status == 500 for entry in fake.log)
    assert failed > 2 * 20
    assert rows_of(data) == {"planned": 60, "failed": 60}
    assert data["exit_code"] == 3


async def test_a_partition_that_cannot_be_seen_asks_no_more(mill, fake_server, here, monkeypatch) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    monkeypatch.setattr(tasks.partition_report, "LEASE_S", 0.2)
    monkeypatch.setattr(tasks.partition_report, "LOOK_S", 0.05)

    def away(storage: Any, path: str, report: Any) -> None:
        if not report.ended:
            raise DatasetError("s3 is away", value=path, expected="", remedy="")
        put_report(storage, path, report)

    monkeypatch.setattr(tasks.partition_report, "put_report", away)
    async with fake_server(slots=1, latency=Latency(0.3, 0.0)) as fake:
        mill.url = fake.url
        data = await mill.refresh(engine__in_flight=2)
        asked = {tuple(entry.input_ids) for entry in fake.log}
    assert data["state"] == "RowsMissing"
    assert "can no longer be seen" in data["error"]
    assert len(asked) < ROWS
    assert len(here.parameters) == 3, "its rows are dealt once more"


async def test_a_partition_waits_for_its_journal(mill) -> None:
    mill.prompts(["a"])
    held = Journal(journal_path(mill.dataset, "partition-2"))
    with held:
        waiting = asyncio.create_task(_opened(mill.dataset))
        await asyncio.sleep(1)
        assert not waiting.done()
    await waiting


async def _opened(dataset: str) -> None:
    async with open_partition(dataset, number=2):
        pass


@pytest.mark.parametrize("fault", [None, httpx.ConnectError("away")])
async def test_a_refresh_ends_what_a_dead_fan_out_left(mill, fake_server, monkeypatch, fault) -> None:
    mill.prompts([f"prompt {n}" for n in range(4)])
    looked: list[str] = []

    async def end(recipe: Any) -> bool:
        looked.append(recipe.dataset)
        if fault:
            raise fault
        return True

    monkeypatch.setattr(tasks.generated, "end_left_behind", end)
    async with fake_server() as fake:
        mill.url = fake.url
        data = await mill.refresh()
        again = await mill.refresh()
    assert (data["state"], rows_of(again)) == ("Completed", {"planned": 4, "kept": 4})
    assert looked == [mill.dataset], "who asks nothing needs not look"


async def test_reports_that_cannot_be_removed_lose_no_row(mill, fake_server, here, monkeypatch) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])

    def denied(self: Storage, path: str) -> None:
        raise DatasetError("cannot be removed", value=path, expected="", remedy="")

    monkeypatch.setattr(Storage, "remove", denied)
    async with fake_server(slots=8) as fake:
        mill.url = fake.url
        data = await mill.refresh()
    assert rows_of(data) == {"planned": ROWS, "generated": ROWS, "ok": ROWS}


class Server:
    """Prefect's, for one partition. `fault`: what it says to every change of a state."""

    def __init__(self, state: Any, fault: Exception | None = None) -> None:
        self.state, self.fault, self.told = state, fault, list[Any]()

    async def set_flow_run_state(self, run: Any, state: Any, *, force: bool) -> None:
        self.told.append(run)
        if self.fault:
            raise self.fault

    async def read_flow_run(self, run: Any) -> Any:
        return SimpleNamespace(state=self.state)

    async def read_task_run(self, run: Any) -> Any:
        raise self.fault or AssertionError


def gone() -> ObjectNotFound:
    return ObjectNotFound(http_exc=Exception("404"))


@pytest.mark.parametrize("fault", [gone(), httpx.ConnectError("away")])
async def test_one_run_that_cannot_be_cancelled_does_not_spare_the_others(fault) -> None:
    server, runs = Server(Crashed(), fault), [uuid4() for _ in range(3)]
    await tasks.partition_runs.cancel(server, runs, wait_s=5)
    assert server.told == runs


async def test_whose_parent_is_deleted_is_left_behind_and_an_unknown_one_is_left_alone() -> None:
    run = SimpleNamespace(name="partition 1/2", parent_task_run_id=uuid4())
    assert await tasks.partition_runs._is_orphan(Server(Running(), gone()), run)
    assert not await tasks.partition_runs._is_orphan(Server(Running(), httpx.ReadTimeout("slow")), run)


@pytest.fixture
def one() -> tasks.partition_runs.Partition:
    return tasks.partition_runs.Partition("partition 1/1", uuid4(), "partitions/a.json", Silence(0.0), 0.0)


async def test_how_a_partition_ended_is_told_with_its_first_line(mill, one) -> None:
    mill.prompts(["a"])
    async with open_for_plan(mill.dataset):
        await tasks.partition_runs._look(Server(Crashed(message="out of memory\nmore")), one, NO_END)
    assert (one.state, one.over) == ("Crashed: out of memory", True)


async def test_a_report_that_cannot_be_read_is_no_silence(mill, one, monkeypatch) -> None:
    mill.prompts(["a"])
    async with open_for_plan(mill.dataset) as space:
        space.storage.replace(one.path, b"[1")
        await tasks.partition_runs._look(Server(Running()), one, NO_END)
    assert not one.over


async def test_a_dead_partition_that_the_server_will_not_hear_of_is_told_of_again(one) -> None:
    silent = Silence(float("-inf"))
    one.silence = silent
    server = Server(Running(), httpx.ConnectError("away"))
    await tasks.partition_runs._heed(server, one, server.state, 1.0, NO_END)
    assert not one.over
    server.fault = None
    await tasks.partition_runs._heed(server, one, server.state, 2.0, NO_END)
    assert one.over


async def test_unfinished_partitions_are_read_to_the_last_page(monkeypatch) -> None:
    monkeypatch.setattr(tasks.partition_runs, "PAGE", 2)
    runs = [SimpleNamespace(parameters={"recipe": {"dataset": "here"}}) for _ in range(5)]

    class Pages:
        async def read_flow_runs(self, *, limit: int, offset: int, **filters: Any) -> Any:
            return runs[offset : offset + limit]

    assert await tasks.partition_runs._unfinished(Pages(), SimpleNamespace(dataset="here")) == runs


async def test_the_watching_process_is_ours_in_a_folder_with_other_tasks(tmp_path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise SystemExit('not ours')")
    command = (sys.executable, "-P", tasks.watched.__file__)
    # Without a run to tell of it ends as soon as it is itself: at its missing arguments.
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stdin=asyncio.subprocess.DEVNULL, stderr=pipe
    )
    _, said = await process.communicate()
    assert b"IndexError" in said
