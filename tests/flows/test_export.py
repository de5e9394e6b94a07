"""A dataset that was really generated, exported by the flow and by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prefect.artifacts import Artifact
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate
from typer.testing import CliRunner

from draftmill.cli import app
from draftmill.errors import RecipeError
from draftmill.serving.fake import FakeServer
from flows.export import export
from tasks.receipts import artifact_key

TEN = [f"prompt {n}" for n in range(10)]


@pytest.fixture
async def dataset(mill: Any, fake_server: Callable[..., FakeServer]) -> str:
    mill.prompts(TEN)
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh()
    return str(mill.dataset)


async def test_the_flow_writes_what_the_trainer_reads(mill: Any, dataset: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    state = await export([dataset], out, "specforge", return_state=True)
    assert (state.name, state.message) == ("Completed", "10 rows in train, read back and found the same")
    lines = [json.loads(line) for line in (tmp_path / "out" / "train.jsonl").read_text().splitlines()]
    assert sorted(line["input_ids"] for line in lines) == sorted(row["input_ids"] for row in mill.rows())
    wanted = {tuple(row["input_ids"]): row["prompt_len"] for row in mill.rows()}
    for line in lines:
        prompt_len = wanted[tuple(line["input_ids"])]
        assert line["loss_mask"] == [0] * prompt_len + [1] * (len(line["input_ids"]) - prompt_len)
    page = await Artifact.get(artifact_key(out, "export"))
    assert page is not None
    assert "10 rows" in str(page.data)


async def test_a_refusal_is_a_state_of_its_name(dataset: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    state = await export([dataset], str(tmp_path / "out"), "specforge", return_state=True)
    assert state.name == "RecipeError"
    assert "not empty" in (state.message or "").splitlines()[0]
    with pytest.raises(RecipeError):
        await state.aresult()


@pytest.mark.parametrize(
    "wrong", [{"to": "nemo"}, {"mask": "all"}, {"split": 0.7}, {"max_length": 1}, {"datasets": []}, {"weights": [-1.0]}]
)
def test_the_form_refuses_a_wrong_value(wrong: dict[str, Any]) -> None:
    schema = parameter_schema(export).model_dump()
    right = {"datasets": ["demo"], "out": "out", "to": "specforge", "max_length": 2048, "seed": None, "weights": [2.0]}
    validate(right, schema, raise_on_error=True, preprocess=True)
    with pytest.raises(ValidationError):
        validate(right | wrong, schema, raise_on_error=True, preprocess=True)
    assert all(field["description"] for field in schema["properties"].values())


def test_the_command(dataset: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    done = CliRunner().invoke(app, ["export", dataset, dataset, "--to", "huggingface", "--split", "0.3", out, "--json"])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout.splitlines()[-1])
    assert record == json.loads((tmp_path / "out" / "export.json").read_text())
    assert sum(part["rows"] for part in record["parts"].values()) == 20
    assert "read back and found the same" in done.stdout


def test_one_place_is_not_enough(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(tmp_path), "--to", "specforge"])
    assert isinstance(done.exception, RecipeError)
    assert "DATASET... OUT" in str(done.exception)
