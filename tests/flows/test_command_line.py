"""The commands as a person runs them: messages of four parts, exit statuses, the JSON of `--json`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prefect.settings import PREFECT_API_URL

from draftmill.serving.faults import Fault

DRAFTMILL = [sys.executable, "-c", "from draftmill.cli import main; main()"]
PARTS = ("error: ", "  got:      ", "  expected: ", "  to do:    ")


async def draftmill(*arguments: str, prefect: str | None = None) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of one command, on the tests' own Prefect server."""
    environment = {**os.environ, "PREFECT_API_URL": prefect or PREFECT_API_URL.value(), "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        *DRAFTMILL, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def recipe_file(mill) -> Callable[..., str]:
    """Writes the mill's recipe as YAML; returns the file's path."""

    def write(**changes: object) -> str:
        path = mill.folder / "recipe.yaml"
        path.write_text(yaml.safe_dump(mill.recipe(**changes).model_dump(mode="json")))
        return str(path)

    return write


def assert_four_parts(err: str, *words: str) -> None:
    assert "Traceback" not in err
    assert all(part in err for part in PARTS), err
    assert all(word in err for word in words), err


async def test_wrong_recipe_key(recipe_file) -> None:
    status, _, err = await draftmill("run", recipe_file(), "--set", "sampling.temprature=1")
    assert status == 2
    assert_four_parts(err, "sampling.temprature", "temperature")


async def test_a_time_that_is_none(recipe_file) -> None:
    status, _, err = await draftmill("run", recipe_file(), "--until", "25:00")
    assert status == 2
    assert_four_parts(err, "until is no time", "'25:00'", "06:00")
    assert "starting" not in err


async def test_missing_recipe() -> None:
    status, _, err = await draftmill("run", "nowhere.yaml")
    assert status == 2
    assert_four_parts(err, "nowhere.yaml")


async def test_missing_prompt_file(recipe_file) -> None:
    status, _, err = await draftmill("run", recipe_file())
    assert status == 2
    assert_four_parts(err, "prompts.jsonl")


async def test_stopped_engine(mill, recipe_file) -> None:
    mill.prompts(["hello"])
    status, _, err = await draftmill("run", recipe_file())
    assert status == 4
    assert_four_parts(err, mill.url, "start the server")


async def test_lines_that_are_not_json_are_rejected_by_line(mill, fake_server, recipe_file) -> None:
    mill.prompts(["hello"])
    path = mill.folder / "prompts.jsonl"
    path.write_text(path.read_text() + "\n{not json\n")
    async with fake_server() as fake:
        mill.url = fake.url
        status, out, err = await draftmill("run", recipe_file(), "--json")
    numbers = json.loads(out.splitlines()[-1])
    assert (status, numbers["reasons"], numbers["rows"]["ok"]) == (0, {"prompt_invalid": 1}, 1)
    assert "Traceback" not in err
    status, out, _ = await draftmill("status", mill.dataset)
    assert "prompts.jsonl:3: prompt_invalid" in out


async def test_nothing_but_lines_that_are_not_json(mill, recipe_file) -> None:
    (mill.folder / "prompts.jsonl").write_text("not json\n")
    status, _, err = await draftmill("run", recipe_file())
    assert status == 1
    assert_four_parts(err, "prompts.jsonl")


async def test_the_whole_life_of_a_dataset(mill, fake_server, recipe_file) -> None:
    mill.prompts([f"prompt {n}" for n in range(6)])
    async with fake_server() as fake:
        mill.url = fake.url
        recipe = recipe_file()
        status, out, _ = await draftmill("run", recipe, "--plan", "--json")
        assert (status, json.loads(out.splitlines()[-1])["rows"]["generated"], len(fake.log)) == (0, 6, 0)
        assert "plan for a new dataset: 6 rows, 6 to ask\n  new prompts: 6\n" in out
        status, out, _ = await draftmill("gate", recipe, "--json")
        assert (status, {c["level"] for c in json.loads(out.splitlines()[-1])["checks"]}) == (0, {"ok"})
        fake.rule = lambda number, request: Fault.NO_END if number == 4 else None
        status, out, err = await draftmill("run", recipe, "--json")
        numbers = json.loads(out.splitlines()[-1])
        assert (status, numbers["rows"]["ok"], numbers["rows"]["quarantined"]) == (3, 5, 1)
        assert "5 of 6 rows" in err or "6 of 6 rows" in err
        assert "plan for a new dataset: 6 rows, 6 to ask\n  new prompts: 6\n" in err
        assert "plan for" not in out
    status, out, _ = await draftmill("run", recipe, "--json")
    numbers = json.loads(out.splitlines()[-1])
    assert (status, numbers["requests"], numbers["manifest"], numbers["sealed"]) == (0, 0, 1, False)
    status, out, _ = await draftmill("verify", mill.dataset, "--json")
    assert (status, json.loads(out.splitlines()[-1])) == (0, {"ok": True, "rows": 5, "faults": []})
    status, out, _ = await draftmill("status", mill.dataset)
    assert (status, "no_end_of_turn 1" in out) == (0, True)
    status, out, _ = await draftmill("show", mill.dataset, "0")
    assert (status, str(mill.rows()[0]["input_ids"][-2]) in out) == (0, True)
    status, out, _ = await draftmill("rerun", mill.dataset, "--json")
    assert (status, json.loads(out.splitlines()[-1])["requests"]) == (0, 0)
    status, out, _ = await draftmill("inspect", recipe, "--json")
    inspection = json.loads(out.splitlines()[-1])
    assert (status, inspection["structure"], inspection["end_ids"]) == (0, "plain", [2])


async def test_verify_names_the_file_and_the_fault(mill, fake_server, recipe_file) -> None:
    mill.prompts(["a", "b"])
    async with fake_server() as fake:
        mill.url = fake.url
        await draftmill("run", recipe_file())
    sound = Path(mill.dataset)
    shard = mill.manifest.shards[0].path

    def flip(folder: Path) -> None:
        data = bytearray((folder / shard).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / shard).write_bytes(data)

    def edit(folder: Path) -> None:
        manifest = folder / "manifests" / "00000001.json"
        manifest.write_text(manifest.read_text().replace('"temperature": 1.0', '"temperature": 0.5'))

    damages = {shard: [flip, lambda folder: (folder / shard).unlink()], "manifests/00000001.json": [edit]}
    for file, harms in damages.items():
        for number, harm in enumerate(harms):
            copy = mill.folder / f"copy-{number}-{len(file)}"
            shutil.copytree(sound, copy)
            harm(copy)
            status, out, err = await draftmill("verify", str(copy))
            assert (status, "Traceback" in err) == (1, False)
            assert f"{file}: " in out


async def test_a_prefect_server_that_does_not_answer(recipe_file) -> None:
    status, _, err = await draftmill("run", recipe_file(), prefect="http://127.0.0.1:9/api")
    assert status == 1
    assert_four_parts(err, "http://127.0.0.1:9/api", "PREFECT_API_URL")


async def test_rerun_refuses_an_unknown_reason(mill) -> None:
    status, _, err = await draftmill("rerun", mill.dataset, "--generate", "--reason", "ugly")
    assert status == 2
    assert_four_parts(err, "ugly", "truncated")


async def test_a_path_without_a_dataset(mill) -> None:
    for command in (("status",), ("verify",), ("rerun",)):
        status, _, err = await draftmill(*command, str(mill.folder))
        assert status in (1, 2)
        assert "Traceback" not in err
