"""Loading inside a run: what the source is gets said, from the cache too; a file that changes meanwhile stops it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftmill.dataset.storage import open_storage
from draftmill.errors import RecipeError, SourceError
from draftmill.progress import Rows, listening
from draftmill.prompts import batches
from tasks import load as module


class Collected:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def wait(self, text: str) -> None: ...

    def rows(self, rows: Rows) -> None: ...


async def planned(mill: Any, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    with listening(told := Collected()):
        data = await mill.refresh(plan_only=True, **changes)
    return data, told.stages


def write(file: Path, *rows: object) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


async def test_what_the_source_is_comes_before_rendering_and_from_the_cache_too(mill) -> None:
    folder = mill.folder / "in"
    write(folder / "a.jsonl", {"id": 1, "prompt": "one"}, {"prompt": ""}, {"text": "two"})
    write(folder / "notes.txt")
    (folder / "notes.txt").write_text("by hand")
    for _ in range(2):
        data, said = await planned(mill, prompts__path=str(folder))
        assert said[:4] == [
            "reading prompts",
            f"{folder}/a.jsonl: jsonl, shapes prompt 1, text 1 (columns: id, prompt, text), 3 rows, 1 rejected",
            f"left out, of no known format: {folder}/notes.txt",
            "rendering 2 prompts",
        ]
    assert data["summary"]["rows"]["rejected"] == 1


async def test_rejected_rows_of_all_batches_are_counted(mill, monkeypatch) -> None:
    monkeypatch.setattr(batches, "REJECTS_ROWS", 2)
    write(mill.folder / "prompts.jsonl", {"prompt": "good"}, *[{"prompt": ""}] * 5)
    data, _ = await planned(mill)
    assert data["summary"]["rows"]["rejected"] == 5


async def test_a_file_that_changes_while_it_is_read_stops_the_run_and_leaves_no_receipt(mill, monkeypatch) -> None:
    file = mill.folder / "prompts.jsonl"
    write(file, {"prompt": "as it was"})
    stream = module.stream_prompts

    def changing(prompts: Any) -> Any:
        write(file, {"prompt": "as it was"}, {"prompt": "more"})
        yield from stream(prompts)

    with monkeypatch.context() as patch:
        patch.setattr(module, "stream_prompts", changing)
        with pytest.raises(SourceError, match="changed while they were read"):
            await planned(mill)
    write(file, {"prompt": "as it was"})
    data, _ = await planned(mill)
    assert data["summary"]["rows"]["generated"] == 1


@pytest.mark.parametrize("path", ["", "*", "**/*.parquet", "dataset/prompts"])
async def test_a_dataset_inside_its_prompts_is_refused_before_anything_is_written(mill, path) -> None:
    (mill.folder / "dataset" / "prompts").mkdir(parents=True)
    with pytest.raises(RecipeError, match="inside its own prompts"):
        await mill.refresh(prompts__path=str(mill.folder / path))
    assert not [file for file in (mill.folder / "dataset").rglob("*") if file.is_file()]


async def test_a_source_that_grew_at_its_end_has_its_slices_already(mill, monkeypatch) -> None:
    monkeypatch.setattr(batches, "SLICE_ROWS", 2)
    rows = [{"prompt": f"prompt {n}"} for n in range(5)]
    write(mill.folder / "prompts.jsonl", *rows)
    await planned(mill)
    storage = open_storage(mill.dataset)
    before = set(Path(storage.url, "prompts").iterdir())
    write(mill.folder / "prompts.jsonl", *rows, {"prompt": "another"})
    await planned(mill)
    new = set(Path(storage.url, "prompts").iterdir()) - before
    # The last slice, its rows, and the chunks of the plan: nothing of the first four prompts is made again.
    texts = [text for file in new for text in storage.read_table(f"prompts/{file.name}").to_pylist() if "line" in text]
    assert sorted({row["line"] for row in texts}) == [5, 6]
