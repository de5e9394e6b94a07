"""A server's key in whole runs: it is sent, and afterwards it is nowhere, whatever the server says with it."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from aiohttp import web
from prefect.logging.handlers import APILogHandler
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, PREFECT_API_URL, PREFECT_HOME

from draftmill.dataset.journal import state_folder
from draftmill.engines._wire import WORDS_KEPT
from draftmill.redaction import PLACEHOLDER, SHORTEST_SECRET
from draftmill.serving.fake import FakeServer
from tests.mill import Mill

KEY = "sk-sentinel-4711-of-a-whole-run"

VARIABLE = "MILL_SERVERS_PASS"
"""No name of a secret's: values of those are taken out of messages once more, which would hide what got so far."""

ROWS = 6


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    caplog.set_level(logging.DEBUG, "draftmill")


def quoting(fake: FakeServer, status: int, before: str = "") -> Callable[[web.Request], Any]:
    """A proxy in front of `/generate` that quotes what it was sent, from the first row on: the canary is answered."""
    answered = fake.on_generate

    async def answer(http: web.Request) -> web.StreamResponse:
        if not fake.log or not quotes.is_set():
            return await answered(http)
        message = f"{before}{http.headers['Authorization']} is not what I like"
        return web.json_response({"error": {"message": message}}, status=status, reason=f"Not {KEY}")

    quotes = asyncio.Event()
    quotes.set()
    fake.on_generate = answer  # type: ignore[method-assign]
    return quotes.clear


def stored(mill: Mill) -> Iterator[tuple[str, str]]:
    """All that a run leaves anywhere, as (place, text): Prefect's database and home, this machine's state, the data."""
    database = Path(urlsplit(PREFECT_API_DATABASE_CONNECTION_URL.value()).path.replace("//", "/"))
    yield from in_tables(database)
    for folder in (mill.folder, state_folder(), PREFECT_HOME.value()):
        for path in (path for path in folder.rglob("*") if path.is_file()):
            yield str(path), path.read_bytes().decode("latin-1")
            if path.suffix == ".parquet":
                yield str(path), repr(pq.read_table(path).to_pylist())
            if path.suffix == ".sqlite":
                yield from in_tables(path)


def in_tables(database: Path) -> Iterator[tuple[str, str]]:
    """Value by value: a file's pages may cut a text in two."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield f"{database.name}: {table}", repr(row)


async def assert_nowhere(mill: Mill, said: str) -> None:
    await APILogHandler.aflush()
    everything = [("said", said), *await asyncio.to_thread(lambda: list(stored(mill)))]
    places = {place for place, text in everything if KEY[:SHORTEST_SECRET] in text}
    assert not places
    found = {place.partition(":")[0] for place, text in everything if VARIABLE in text}
    assert any(place.endswith(".db") for place in found), "what is searched has the run's parameters"


async def test_the_right_key_is_nowhere(mill: Any, fake_server: Any, caplog: Any, capfd: Any) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    async with fake_server() as fake:
        fake.card = replace(fake.card, api_key=KEY)
        mill.url = fake.url
        data = await mill.refresh(engine__api_key_env=VARIABLE)
    assert data["state"] == "Completed"
    assert len(mill.rows()) == ROWS
    await assert_nowhere(mill, f"{data}{caplog.text}{capfd.readouterr()}")


@pytest.mark.parametrize(
    ("status", "before"),
    [(400, ""), (401, ""), (500, "." * (WORDS_KEPT - len("Bearer ") - len(KEY) + 3))],
    ids=["rejected", "refused", "cut within the key"],
)
async def test_a_key_that_is_quoted_is_nowhere(
    mill: Any, fake_server: Any, caplog: Any, capfd: Any, status: int, before: str
) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    mill.changes = {"engine__api_key_env": VARIABLE, "engine__retries": 0}
    fake = fake_server()
    be_quiet = quoting(fake, status, before)
    async with fake:
        fake.card = replace(fake.card, api_key=KEY)
        mill.url = fake.url
        data = await mill.refresh()
        assert data["state"] == "RowsMissing"
        be_quiet()
        mended = await mill.refresh()
    assert mended["state"] == "Completed"
    said = f"{data}{mended}{caplog.text}{capfd.readouterr()}"
    assert (PLACEHOLDER in said) == (status != 401), "it was quoted, and taken out; a refused key's page is not read"
    await assert_nowhere(mill, said)


async def test_the_command_line_shows_it_to_nobody(mill: Any, fake_server: Any) -> None:
    mill.prompts([f"prompt {n}" for n in range(ROWS)])
    fake = fake_server()
    quoting(fake, 500)
    async with fake:
        fake.card = replace(fake.card, api_key=KEY)
        mill.url = fake.url
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from draftmill.cli import main; main()", "run"),
            mill.recipe_file(engine__api_key_env=VARIABLE, engine__retries=0),
            env={**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value(), "PREFECT_LOGGING_LEVEL": "DEBUG"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 3
    await assert_nowhere(mill, said.decode())
