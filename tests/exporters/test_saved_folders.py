"""`save_to_disk` folders of ours, opened by the library `datasets` itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, concatenate_datasets, load_from_disk
from datasets.arrow_dataset import Value
from datasets.features import List
from fsspec.implementations.dirfs import DirFileSystem

from draftmill.arrays import MAX_ID
from draftmill.exporters import _saved, huggingface, speculators
from draftmill.exporting.examples import Example
from draftmill.exporting.vocabulary import Vocabulary
from draftmill.records import Span

VOCABULARY = Vocabulary(MAX_ID + 1, {}, lambda: pytest.fail("no tokenizer is needed"))

SPANS = (Span(2, 4, 3, "stop", 9), Span(6, 7, None, "length", None))


def example(number: int, length: int = 7) -> Example:
    ids_T = np.arange(number, number + length, dtype=np.int32)
    mask_T = (np.arange(length) >= 2).astype(np.uint8)
    return Example(f"key {number}", f"prompt {number}", ids_T, mask_T, 2, 3, SPANS)


def written(folder: Path, exporter: Any, examples: list[Example], part: str = "train") -> list[str]:
    paths: list[str] = exporter.write(DirFileSystem(str(folder)), part, iter(examples), vocabulary=VOCABULARY)
    return paths


def test_every_column_with_its_type_and_value(tmp_path: Path) -> None:
    written(tmp_path, huggingface, [example(5), example(MAX_ID - 6)])
    dataset = load_from_disk(str(tmp_path / "train"))
    assert dataset.features["input_ids"] == List(Value("int32"))
    assert dataset.features["loss_mask"] == List(Value("int8"))
    assert dataset[0] == {
        "row_key": "key 5",
        "prompt_id": "prompt 5",
        "input_ids": [5, 6, 7, 8, 9, 10, 11],
        "loss_mask": [0, 0, 1, 1, 1, 1, 1],
        "prompt_len": 2,
        "reasoning_end": 3,
        "spans": [
            {"start": 2, "end": 4, "reasoning_end": 3, "finish_reason": "stop", "stop_id": 9},
            {"start": 6, "end": 7, "reasoning_end": None, "finish_reason": "length", "stop_id": None},
        ],
    }
    assert dataset[1]["input_ids"][-1] == MAX_ID


@pytest.mark.parametrize("number", [0, 1, 255, 256, 257, 1500])
def test_any_number_of_rows_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Files of 256 rows here, so that several are needed, and some end exactly where the rows do."""
    monkeypatch.setattr(_saved, "FILE_IDS", 256 * 7)
    paths = written(tmp_path, huggingface, [example(n) for n in range(number)])
    assert sum(path.endswith(".arrow") for path in paths) >= max(1, number // 256)
    dataset = load_from_disk(str(tmp_path / "train"))
    assert dataset["prompt_id"][:] == [f"prompt {n}" for n in range(number)]


def test_users_go_on_from_there(tmp_path: Path) -> None:
    """Parts joined, mapped, filtered and saved again: the library takes the folder for its own."""
    written(tmp_path, huggingface, [example(n) for n in range(8)])
    written(tmp_path, huggingface, [example(n) for n in range(8, 11)], "validation")
    both = concatenate_datasets([load_from_disk(str(tmp_path / part)) for part in ("train", "validation")])
    longer = both.map(lambda row: {"length": len(row["input_ids"])}).filter(lambda row: row["prompt_id"] != "prompt 3")
    longer.save_to_disk(str(tmp_path / "mine"))
    assert load_from_disk(str(tmp_path / "mine"))["length"][:] == [7] * 10


def test_the_training_folder_of_speculators(tmp_path: Path) -> None:
    """Columns and types as its `prepare-data` saves them; with torch: tests/trainers."""
    written(tmp_path, speculators, [example(3), example(40, length=4)])
    state = json.loads((tmp_path / "train" / "state.json").read_text())
    assert (state["_format_type"], state["_format_columns"]) == ("torch", None)
    (file,) = state["_data_files"]
    dataset = Dataset.from_file(str(tmp_path / "train" / file["filename"]))
    assert {name: str(feature) for name, feature in dataset.features.items()} == {
        "input_ids": "List(Value('int64'))",
        "loss_mask": "List(Value('int64'))",
        "seq_len": "Value('int64')",
    }
    assert dataset[1] == {"input_ids": [40, 41, 42, 43], "loss_mask": [0, 0, 1, 1], "seq_len": 4}


def test_its_lines_and_its_folder_are_the_same_rows(tmp_path: Path) -> None:
    written(tmp_path, speculators, [example(3), example(40, length=4)])
    lines = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    dataset = Dataset.from_file(str(tmp_path / "train" / "data-00000.arrow"))
    assert lines == [{name: row[name] for name in ("input_ids", "loss_mask")} for row in dataset]
