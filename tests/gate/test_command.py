"""`draftmill gate` as people call it: the table, the JSON line, the exit status, the manifest it compares with."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from draftmill.cli import app
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.schema import FORMAT


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset whose newest manifest was made with weight version w1."""
    manifest = Manifest(
        format=FORMAT,
        version=1,
        parent=None,
        seal_id="a",
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        shards=[],
        quarantine=[],
        rejected=[],
        consumed=[],
        recipe={},
        identity={},
        structures={},
        provenance={"servers": [{"url": "http://a", "weight_version": "w1"}]},
        counts={},
        failed=[],
    ).hashed()
    folder = tmp_path / "dataset"
    (folder / "manifests").mkdir(parents=True)
    (folder / manifest.path).write_bytes(manifest.to_bytes())
    return folder


@pytest.fixture
def command(tmp_path: Path, recipe_for: Any) -> Any:
    """`await command(url, "--json", dataset=...)`."""

    async def run(*urls: str, arguments: tuple[str, ...] = (), dataset: Path | None = None) -> Result:
        data = recipe_for(*urls).model_dump(mode="json") | {"dataset": str(dataset or tmp_path / "none")}
        file = tmp_path / "recipe.yaml"
        file.write_text(yaml.safe_dump(data))
        return await asyncio.to_thread(CliRunner().invoke, app, ["gate", str(file), *arguments])

    return run


def checks(result: Result) -> dict[str, dict[str, str]]:
    found = json.loads(result.stdout.splitlines()[-1])["checks"]
    return {check["name"]: check for check in found}


async def test_a_good_server_is_status_0_and_a_dataset_need_not_be_there(
    server: Any, command: Any, tokenizes: Any
) -> None:
    async with server(tokenizer=tokenizes) as fake:
        result = await command(fake.url, arguments=("--json",))
    assert result.exit_code == 0
    assert {check["level"] for check in checks(result).values()} == {"ok"}


async def test_the_table_is_grouped_by_server_and_fits(server: Any, command: Any) -> None:
    async with server() as one, server(card={"reasoning_parser": "kimi_k2", "notes": ("a fake",)}) as other:
        result = await command(one.url, other.url)
    lines = result.stdout.splitlines()
    titles = [line for line in lines if line.strip() in (one.url, other.url, "all servers")]
    assert [title.strip() for title in titles] == [one.url, other.url, "all servers"]
    table = lines[: next(index for index, line in enumerate(lines) if line.startswith(("warn http", "refuse http")))]
    assert max(map(len, table)) <= 100
    assert len({line.index("speculative decoding") for line in lines if "speculative decoding" in line}) == 1
    assert f"refuse {other.url} reasoning parser: start the server without --reasoning-parser" in result.stdout
    assert f"warn {other.url} engine: good for trying things out" in result.stdout
    assert result.exit_code == 4


@pytest.mark.parametrize(("weights", "status", "level"), [("stop", 4, "refuse"), ("record", 0, "warn")])
async def test_other_weights_than_the_newest_manifests(
    server: Any, command: Any, dataset: Path, weights: str, status: int, level: str
) -> None:
    async with server(card={"weight_version": "w2"}) as fake:
        arguments = ("--json", "--set", f"engine.weights={weights}")
        result = await command(fake.url, arguments=arguments, dataset=dataset)
    assert (result.exit_code, checks(result)["weight version"]["level"]) == (status, level)


async def test_the_newest_manifests_weights_pass(server: Any, command: Any, dataset: Path) -> None:
    async with server(card={"weight_version": "w1"}) as fake:
        result = await command(fake.url, arguments=("--json",), dataset=dataset)
    assert (result.exit_code, checks(result)["weight version"]["level"]) == (0, "ok")


async def test_no_server_is_status_4_and_a_table(server: Any, command: Any) -> None:
    async with server() as gone:
        pass
    result = await command(gone.url, arguments=("--json",))
    assert result.exit_code == 4
    assert checks(result).keys() == {"reachable"}
    assert "start the server" in checks(result)["reachable"]["remedy"]
