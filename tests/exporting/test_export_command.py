"""`draftmill export` as people call it: several places and then one, lines for people, one JSON object at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from draftmill.cli import app
from draftmill.errors import RecipeError
from tests.exporting.conftest import Datasets, Made


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", *arguments])


@pytest.fixture
def urls(datasets: Datasets) -> list[str]:
    return [datasets.make([Made(f"{name}{n}", first_id=100 + n) for n in range(9)]) for name in "ab"]


@pytest.mark.parametrize(
    ("datasets_of", "rows"), [(lambda urls: urls, 18), (lambda urls: urls[:1], 9)], ids=["two", "one"]
)
@pytest.mark.parametrize("where", ["option last", "out last"])
def test_datasets_come_first_and_the_folder_last(
    urls: list[str], tmp_path: Path, datasets_of: object, rows: int, where: str
) -> None:
    given, out = datasets_of(urls), str(tmp_path / "out")  # type: ignore[operator]
    places = [*given, "--to", "specforge", out] if where == "out last" else [*given, out, "--to", "specforge"]
    result = call(*places, "--json")
    assert result.exit_code == 0, result.output
    *lines, last = result.stdout.splitlines()
    assert json.loads(last) == json.loads((tmp_path / "out" / "export.json").read_text())
    assert [entry["url"] for entry in json.loads(last)["datasets"]] == given
    assert any(f"train: {rows} rows" in line for line in lines)
    assert len((tmp_path / "out" / "train.jsonl").read_text().splitlines()) == rows


def test_options_reach_the_export(urls: list[str], tmp_path: Path) -> None:
    options = ["--mask", "content", "--max-length", "8", "--longer", "drop", "--drafter", "dflash", "--split", "0.3"]
    weights = ["--weight", "2", "--weight", "1"]
    result = call(*urls, "--to", "huggingface", str(tmp_path / "out"), *options, *weights, "--no-shuffle", "--json")
    assert isinstance(result.exception, RecipeError), "every row has 9 ids"
    assert "too_long 18" in result.exception.remedy
    result = call(*urls, "--to", "huggingface", str(tmp_path / "out"), *options[:2], *options[6:], *weights, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout.splitlines()[-1])
    told = {name: record[name] for name in ("exporter", "mask", "max_length", "longer", "drafter", "split", "seed")}
    assert told == {
        "exporter": "huggingface",
        "mask": "content",
        "max_length": None,
        "longer": "cut",
        "drafter": "dflash",
        "split": 0.3,
        "seed": 0,
    }
    assert [entry["weight"] for entry in record["datasets"]] == [2.0, 1.0]
    assert sum(part["rows"] for part in record["parts"].values()) == 27


def test_one_place_alone_is_refused(urls: list[str]) -> None:
    result = call(urls[0], "--to", "specforge")
    assert isinstance(result.exception, RecipeError)
    assert "goes from somewhere to somewhere" in str(result.exception)
