"""`draftmill up` and a browser: a run from the form, its artifacts, and the UI's own Retry button."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from draftmill.dataset.manifest import Manifest, newest
from draftmill.dataset.storage import open_storage
from draftmill.serving.faults import Fault
from draftmill.serving.prefect_server import PrefectServer
from draftmill.serving.process import Child, free_ports
from tests.e2e.pages import Pages

CHROMIUM = shutil.which("chromium")

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
ARGUMENTS += ["--disable-sync", "--no-first-run"]
"""A browser that itself asks nobody; as root it has no sandbox."""

UP_S, ENDS_S = 240, 60
"""Seconds for everything to come up, and to end."""

DEMO_ROWS = 48
FAILED = (3, 11, 30)
"""Requests that get no answer; 1 is the canary."""

if CHROMIUM is None and os.environ.get("DRAFTMILL_E2E") != "all":
    pytest.skip("no chromium on this machine (Debian: apt-get install chromium)", allow_module_level=True)


@dataclass(frozen=True)
class Up:
    """A running `draftmill up` whose engine is the test's."""

    home: Path
    port: int
    engine_port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What its file says for another shell."""
        lines = (self.home / "env").read_text().splitlines()
        pairs = [line.split("=", 1) for line in lines if not line.startswith("#")]
        return {name: value.strip("'\"") for name, value in pairs}

    @property
    def password(self) -> str:
        return self.environment["PREFECT_API_AUTH_STRING"]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Prefect's API, for what the test does beside the browser."""
        return PrefectServer(self.home / "prefect", port=self.port, auth=self.password).ask(method, path, body)

    def start(self, **changes: Any) -> str:
        """A run of `refresh` with these changes to the recipe of its form, as `engine__retries=0`; its id."""
        found = self.ask("GET", "/deployments/name/refresh/refresh")
        parameters = found["parameters"]
        for name, value in changes.items():
            part, _, key = name.rpartition("__")
            (parameters["recipe"][part] if part else parameters["recipe"])[key] = value
        body = {"parameters": parameters, "enforce_parameter_schema": True}
        run: str = self.ask("POST", f"/deployments/{found['id']}/create_flow_run", body)["id"]
        return run


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    port, s3_port, engine_port = free_ports(3)
    log = folder / "up.log"
    command = [sys.executable, "-m", "draftmill", "up", "--home", str(folder / "home"), "--no-engine"]
    command += ["--port", str(port), "--s3-port", str(s3_port), "--engine-port", str(engine_port)]
    child = Child(
        "draftmill up",
        command,
        environment={name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_"))},
        log=log,
        answers=lambda: "another shell" in log.read_text(),
        ready_s=UP_S,
        ends_s=ENDS_S,
        folder=folder,
    )
    child.start()
    try:
        yield Up(folder / "home", port, engine_port)
    finally:
        child.stop()
    assert "everything has ended" in log.read_text()


@pytest.fixture
async def pages(up: Up, tmp_path: Path) -> AsyncIterator[Pages]:
    """A browser's tab in which somebody has logged in. It has asked nobody else, and nothing has gone wrong in it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        pages = Pages(await browser.new_page(viewport={"width": 1400, "height": 1000}), up.url, tmp_path)
        await pages.log_in(up.password)
        yield pages
        await browser.close()
    assert pages.elsewhere == set()
    assert pages.complaints == []


def manifest(up: Up, dataset: str, s3_environment: Any) -> Manifest:
    """The newest one, read as another shell would."""
    s3_environment({name: value for name, value in up.environment.items() if name.startswith("AWS_")})
    found = newest(open_storage(dataset))
    assert found is not None
    return found


async def test_a_run_from_the_form_with_a_changed_number(up, pages, fake_server, s3_environment) -> None:
    async with fake_server(port=up.engine_port):
        await pages.open_form("refresh")
        await pages.shot("form")
        await pages.field("max_new_tokens").fill("33")
        await pages.submit()
        await pages.comes_to("Completed")
    await pages.shot("run")
    progress = await pages.artifact("demo-progress")
    assert re.search(r"Progress: 100\s*%", progress)
    assert f"{DEMO_ROWS} new rows" in progress
    assert str(DEMO_ROWS) in await pages.artifact("demo-rows")
    assert str(DEMO_ROWS) in await pages.artifact("demo-summary")
    await pages.artifact("demo-reasons")
    sealed = manifest(up, "s3://draftmill/demo", s3_environment)
    assert sealed.recipe["sampling"]["max_new_tokens"] == 33
    assert sum(shard.rows for shard in sealed.shards) == DEMO_ROWS


async def test_the_retry_button_asks_only_for_the_rows_that_failed(up, pages, fake_server, s3_environment) -> None:
    dataset = "s3://draftmill/retried"
    async with fake_server(port=up.engine_port) as fake:
        fake.rule = lambda number, _: Fault.ERROR_500 if number in FAILED else None
        run = await asyncio.to_thread(up.start, dataset=dataset, engine__retries=0, engine__in_flight=1)
        await pages.open_run(run)
        await pages.comes_to("RowsMissing")
        await pages.shot("failed")
        asked = len(fake.log)
        failed = Counter(tuple(entry.input_ids) for entry in fake.log if entry.fault)
        assert len(failed) == len(FAILED)
        await pages.tab("Details")
        await pages.shot("failed-details")
        assert "3 of 3 failed rows: HTTP 500" in await pages.text()
        fake.rule = None
        await pages.retry()
        await pages.comes_to("Completed")
        await pages.shot("retried")
        canary = Counter({tuple(fake.log[0].input_ids): 1})
        assert Counter(tuple(entry.input_ids) for entry in fake.log[asked:]) - canary == failed
    assert sum(shard.rows for shard in manifest(up, dataset, s3_environment).shards) == DEMO_ROWS
