"""PostgreSQL under Prefect's server, as a team has it: nothing is missing, a restart and a backup know everything."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from draftmill.serving.prefect_server import PrefectServer
from tests.e2e.conftest import FINAL, Stack, deploy
from tests.e2e.postgres import Postgres, postgres

ROWS = 230
"""One row a chunk, three task runs a chunk: about 700 task runs in some seconds."""

WAIT_S = 240
"""Seconds for the run, and for its task runs to be written down: 20 on a quiet machine."""

pytestmark = pytest.mark.timeout(900)
"""Three servers start, and 700 task runs are written down: minutes on a busy machine."""

AUTH = "admin:a-password-of-the-test"


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as server:
        server.run("createdb", "prefect")
        yield server


@pytest.fixture(scope="module")
def stack(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack of conftest.py on PostgreSQL, behind a password as infra/compose.yaml has it."""
    folder = tmp_path_factory.mktemp("stack")
    with ExitStack() as bound:
        server = PrefectServer(folder / "prefect", auth=AUTH, database=database.url("prefect"))
        bound.enter_context(server)
        deploy(server)
        yield Stack(server, folder, bound)


async def until(holds: Callable[[], bool]) -> None:
    """Asks once a second; a server that has hundreds of task runs to write down may let us wait."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(TimeoutError):
            if await asyncio.to_thread(holds):
                return
        assert time.monotonic() < deadline
        await asyncio.sleep(1)


def task_runs(server: PrefectServer, run: str) -> Counter[str]:
    """The types of a run's task runs' states, page by page as the UI asks for them."""
    found: Counter[str] = Counter()
    while True:
        body = {"flow_runs": {"id": {"any_": [run]}}, "limit": 200, "offset": found.total()}
        page = server.ask("POST", "/task_runs/filter", body)
        if not page:
            return found
        found.update(each["state_type"] for each in page)


async def test_every_task_run_is_there_after_a_restart_and_after_a_restore(stack, database, mill, fake_server) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server() as fake:
        mill.url = fake.url
        worker = await asyncio.to_thread(stack.worker)
        run = stack.start("refresh/refresh", recipe=mill.data(chunk_rows=1))
        await until(lambda: stack.run(run)["state"]["type"] in FINAL)
        assert (stack.run(run)["state"]["type"], len(mill.rows())) == ("COMPLETED", ROWS)
    # The server writes them down a moment after they ended.
    await until(lambda: set(task_runs(stack.server, run)) <= set(FINAL))
    tasks = task_runs(stack.server, run)
    print(tasks)
    assert tasks.total() >= 3 * ROWS

    worker.stop()
    stack.server.stop()
    backup = str(stack.folder / "prefect.dump")
    database.run("pg_dump", "--format=custom", f"--file={backup}", "prefect")
    await asyncio.to_thread(stack.server.start)
    assert knows(stack.server, run, tasks)

    database.run("createdb", "restored")
    database.run("pg_restore", "--exit-on-error", "--dbname=restored", backup)
    restored = PrefectServer(stack.folder / "restored", auth=AUTH, database=database.url("restored"))
    await asyncio.to_thread(restored.start)
    try:
        assert knows(restored, run, tasks)
        assert restored.ask("GET", "/deployments/name/refresh/refresh")["work_pool_name"] == "draftmill"
    finally:
        restored.stop()


def knows(server: PrefectServer, run: str, tasks: Counter[str]) -> bool:
    state = server.ask("GET", f"/flow_runs/{run}")["state"]["type"]
    return state == "COMPLETED" and task_runs(server, run) == tasks
