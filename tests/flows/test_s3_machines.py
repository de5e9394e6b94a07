"""Several machines and one bucket: what one leaves another goes on with, and two at once lose nothing."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftmill.dataset.manifest import newest, read_manifest
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.verify import verify
from draftmill.serving.fake import FakeServer, Latency
from draftmill.serving.fake_log import LogEntry
from draftmill.serving.seaweed import SeaweedFS

ROWS = 40
OFTEN = {"draftmill.workspace.PART_EVERY_S": 0.3}
"""Parts go up every 0.3 s."""


def keys_in_parts(storage: Storage) -> set[str]:
    """The rows that another machine can see."""
    parts = [storage.read_table(path, ["row_key"]) for path in storage.list("completions")]
    return {key for part in parts for key in part["row_key"].to_pylist()}


def fresh_machine(folder: Path) -> dict[str, str]:
    """The environment of a machine that has draftmill and the credentials, and nothing else."""
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("AWS_")}
    return kept | {"HOME": str(folder), "DO_NOT_TRACK": "1"}


def asked_prompts(entries: list[LogEntry]) -> Counter[tuple[int, ...]]:
    return Counter(tuple(entry.input_ids or ()) for entry in entries)


def assert_keeps_secrets(secrets: list[str], folder: Path, storage: Storage) -> None:
    """Neither a file of the machine (state, Prefect's database, what the run said) nor an object has any of them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"journal.sqlite", "prefect.db"} <= {path.name for path in files}
    for path in files:
        assert not any(secret.encode() in path.read_bytes() for secret in secrets), path
    for name in storage.list(""):
        assert not any(secret.encode() in storage.read(name) for secret in secrets), name


async def test_another_machine_goes_on_with_the_recipe_and_the_credentials_alone(
    s3_mill: Any,
    seaweed: SeaweedFS,
    fake_server: Callable[..., FakeServer],
    start_run: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """With a Prefect server of its own too; and the key is in nothing that it leaves behind."""
    s3_mill.prompts([f"prompt {n}" for n in range(ROWS)])
    storage = open_storage(s3_mill.dataset)
    async with fake_server(slots=2, latency=Latency(first_s=0.3)) as fake:
        s3_mill.url = fake.url
        # Chunks of 16 rows: parts are there before the first chunk is.
        recipe = s3_mill.recipe_file(engine__in_flight=2, chunk_rows=16)
        process = await start_run(recipe, constants=OFTEN)
        while not await asyncio.to_thread(keys_in_parts, storage):
            assert process.returncode is None, (tmp_path / "recipe.err").read_text()
            await asyncio.sleep(0.1)
        process.kill()
        await process.wait()
        there, before = await asyncio.to_thread(keys_in_parts, storage), len(fake.log)
        assert 0 < len(there) < ROWS
        assert await asyncio.to_thread(newest, storage) is None
        process = await start_run(recipe, environment=fresh_machine(tmp_path / "machine"))
        assert await process.wait() == 0, (tmp_path / "recipe.err").read_text()
        canary = tuple(fake.log[0].input_ids or ())
        asked = asked_prompts(fake.log[before:])
    del asked[canary]
    rows = s3_mill.rows()
    assert len(rows) == len({row["row_key"] for row in rows}) == ROWS
    missing = {tuple(row["input_ids"][: row["prompt_len"]]) for row in rows if row["row_key"] not in there}
    assert asked == Counter(missing)
    found = verify(storage)
    assert (found.ok, found.rows) == (True, ROWS), found.faults
    assert_keeps_secrets([seaweed.key.access_key, seaweed.key.secret_key], tmp_path, storage)


async def test_two_machines_at_once(
    s3_mill: Any, fake_server: Callable[..., FakeServer], start_run: Callable[..., Any], tmp_path: Path
) -> None:
    """Most prompts are both's, some are one's own: both have something to seal, whoever is first."""
    shared, own = [f"prompt {n}" for n in range(10)], 5
    mills = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        mills.append(type(s3_mill)(folder, place=s3_mill.dataset))
        mills[-1].prompts(shared + [f"{name} {n}" for n in range(own)])
    async with fake_server(slots=8, latency=Latency(first_s=0.2)) as fake:
        processes = []
        for mill in mills:
            mill.url = fake.url
            environment = os.environ | {"DRAFTMILL_STATE": str(mill.folder / "state")}
            environment["PREFECT_HOME"] = str(mill.folder / "prefect")
            processes.append(await start_run(mill.recipe_file(), environment=environment))
        for process, mill in zip(processes, mills, strict=True):
            assert await process.wait() == 0, (mill.folder / "recipe.err").read_text()
    rows = s3_mill.rows()
    assert sorted(row["prompt_id"] for row in rows) == sorted(
        shared + [f"{name} {n}" for name in ("a", "b") for n in range(own)]
    )
    storage = open_storage(s3_mill.dataset)
    found = verify(storage)
    assert (found.ok, found.rows) == (True, len(rows)), found.faults
    newest_one = newest(storage)
    assert newest_one is not None
    chain = [read_manifest(storage, version) for version in range(1, newest_one.version + 1)]
    assert [(m.parent.version, m.parent.sha256) for m in chain[1:]] == [(m.version, m.sha256) for m in chain[:-1]]
    assert len(chain) == 2
