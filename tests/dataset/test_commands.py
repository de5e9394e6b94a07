"""`status`, `diff`, `compact`, `gc`, `verify` as people call them: text, the last line as JSON, the exit status."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from draftmill.cli import app
from draftmill.dataset.card import CARD, read_card
from draftmill.dataset.rejected import rejections_table
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError, DraftmillError, RecipeError
from draftmill.records import Reason, Rejection
from draftmill.reporting.bar import BarListener

Run = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def dataset(storage: Storage, stored_rows: Callable[..., pa.Table]) -> Storage:
    """Two versions of two shards each, and twelve rejected prompts."""
    rejections = [Rejection(Reason.DUPLICATE, "of prompt 1", str(n), "prompts.jsonl", n) for n in range(12)]
    rejected = [storage.put_table("rejected", rejections_table(rejections))]
    for night in range(2):
        refs = [storage.put_table("shards", stored_rows({"key": f"{night}{n}"})) for n in range(2)]
        recipe = {"sampling": {"top_p": 0.5 + night / 4}, "on_truncated": "keep", "degenerate": "off"}
        seal(storage, Change(good=refs, rejected=rejected, recipe=recipe))
    return storage


@pytest.fixture
def run() -> Run:
    """`text, last_line = run("status", url)`; raises what the command raised."""

    def call(*arguments: str, exit_code: int = 0) -> tuple[str, dict[str, Any]]:
        result = CliRunner().invoke(app, [*arguments, "--json"])
        if isinstance(result.exception, DraftmillError):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        *lines, last = result.stdout.splitlines()
        return "\n".join(lines), json.loads(last)

    return call


def test_status(dataset: Storage, run: Run) -> None:
    text, data = run("status", dataset.url)
    assert [version["version"] for version in data["manifests"]] == [1, 2]
    assert "  prompts.jsonl:0: duplicate: of prompt 1" in text
    assert "and 2 more: --rejected lists them" in text
    assert "card: missing" in text
    assert data["folders"]["shards"]["objects"] == 4
    assert "shards: 4 objects, " in text
    text, data = run("status", dataset.url, "--rejected")
    assert text.count(": duplicate: ") == len(data["rejected_prompts"]) == 12


def test_diff(dataset: Storage, run: Run) -> None:
    text, data = run("diff", dataset.url)
    assert text.splitlines()[:3] == [
        f"{dataset.url}: manifest 1 -> 2",
        "rows: 2 -> 4, good 2 -> 4",
        "  added 2: good 2",
    ]
    assert "recipe: sampling.top_p: 0.5 -> 0.75" in text
    assert "rows new in manifest 2 (in brackets: manifest 1)" in text
    assert (data["old"], data["new"], data["rows"]["added"]) == (1, 2, {"good": 2})
    text, data = run("diff", dataset.url, "2", "1")
    assert data["rows"]["removed"] == {"good": 2}
    with pytest.raises(RecipeError):
        run("diff", dataset.url, "1", "3")


def test_compact_then_gc(dataset: Storage, run: Run) -> None:
    text, data = run("compact", dataset.url)
    assert text == f"{dataset.url}: manifest 3, 4 objects -> 1, the same rows"
    assert data == {"dataset": dataset.url, "manifest": 3, "sealed": True, "objects": {"before": 4, "after": 1}}
    assert dataset.read(CARD)
    text, data = run("compact", dataset.url)
    assert (data["manifest"], data["sealed"]) == (None, False)
    assert text == f"{dataset.url}: nothing to compact in 1 objects, no new manifest"
    for entry in dataset.entries(""):
        os.utime(Path(dataset.url) / entry.path, (0, 0))
    assert run("gc", dataset.url)[1]["objects"] == 0
    text, data = run("gc", dataset.url, "--keep", "1")
    assert (data["deleted"], data["folders"]["shards"]["objects"], data["kept_manifests"]) == (False, 4, [3])
    assert "nothing was removed: --delete does that" in text
    assert len(dataset.list("shards")) == 5
    text, data = run("gc", dataset.url, "--keep", "1", "--delete", "--older-than", "7d")
    assert (data["deleted"], len(dataset.list("shards"))) == (True, 1)
    assert "removed; the objects of manifests 3 stay" in text
    with pytest.raises(DatasetError, match="manifest 2 cannot be compared"):
        run("diff", dataset.url)


def test_a_card_that_cannot_be_written_does_not_undo_compacting(dataset: Storage, run: Run) -> None:
    dataset.replace(CARD, b"---\nno end\n")
    assert run("compact", dataset.url)[1]["manifest"] == 3
    assert read_card(dataset) == "---\nno end\n"


def test_verify_lists_what_it_did_not_verify(dataset: Storage, run: Run) -> None:
    dataset.create("notes.txt", b"")
    said, data = run("verify", dataset.url, exit_code=1)
    assert {fault["file"] for fault in data["faults"]} == set(dataset.list("shards"))
    assert "of a variant that the manifest has no structure of" in data["faults"][0]["fault"]
    assert data.keys() == {"ok", "rows", "faults"}
    assert "not verified: notes.txt: 1 not draftmill's" in said


EVERY = [["status"], ["show", "0"], ["verify"], ["diff"], ["compact"], ["gc"], ["rerun"]]


def call(command: Sequence[str], url: str) -> Result:
    name, *more = command
    return CliRunner().invoke(app, [name, url, *more])


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command[0])
def test_no_dataset_there(storage: Storage, command: Sequence[str]) -> None:
    if command == ["verify"]:  # whose word is a fault
        assert "no manifest" in call(command, storage.url).output
        return
    error = call(command, storage.url).exception
    assert isinstance(error, RecipeError)
    assert error.what == "no dataset there"


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command[0])
@pytest.mark.parametrize("url", ["s3://KEY:hunter2@bucket/x", "https://u:hunter2@h/x", "s3://bucket//x", "s3:/b/x"])
def test_no_place(url: str, command: Sequence[str]) -> None:
    result = call(command, url)
    assert isinstance(result.exception, RecipeError)
    assert "hunter2" not in result.output + str(result.exception)


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command[0])
def test_a_storage_that_does_not_answer_is_waited_for_aloud(
    command: Sequence[str], s3_environment: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftmill.dataset.patience.SILENT_S", 0.0)
    monkeypatch.setattr("draftmill.dataset.storage.START_S", 1.0)
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
    s3_environment(keys | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    said: list[str] = []
    monkeypatch.setattr(BarListener, "stage", lambda _, text: said.append(text))
    result = call(command, "s3://bucket/x")
    assert isinstance(result.exception, DatasetError)
    assert any("waiting up to 1 s" in text for text in said)


def test_no_age(dataset: Storage, run: Run) -> None:
    with pytest.raises(RecipeError, match="no age"):
        run("gc", dataset.url, "--older-than", "tomorrow")
