"""Folders of Hugging Face `datasets`, as `save_to_disk` and `push_to_hub` leave them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, disable_progress_bars

from draftmill.errors import RecipeError, SourceError
from draftmill.prompts.digest import source_digest
from draftmill.prompts.files import SourceFile, find_files
from draftmill.prompts.load import load_prompts
from draftmill.recipe import Prompts


def dataset(name: str, rows: int) -> Dataset:
    return Dataset.from_list([{"prompt": f"{name} {n}"} for n in range(rows)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Splits train (3 files) and test (1), and beside the rows what `datasets` leaves: caches, metadata."""
    disable_progress_bars()
    folder = tmp_path / "in" / "ds"
    splits = DatasetDict(train=dataset("train", 5), test=dataset("test", 2))
    splits.save_to_disk(str(folder), num_shards={"train": 3, "test": 1})
    (arrow,) = (folder / "test").glob("*.arrow")
    shutil.copy(arrow, folder / "train" / "cache-0123456789abcdef.arrow")
    return folder


def prompts_of(path: Path, **more: Any) -> list[str]:
    table = load_prompts(Prompts(path=str(path), **more)).table
    return [json.loads(text)["messages"][0]["content"] for text in table["messages"].to_pylist()]


def names(path: Path, **more: Any) -> list[str]:
    return [file.path.rsplit("/", 1)[-1] for file in find_files(Prompts(path=str(path), **more))]


TRAIN = [f"train {n}" for n in range(5)]


def test_the_train_split_is_read_file_by_file_and_nothing_else(saved):
    assert prompts_of(saved) == TRAIN
    assert names(saved) == [f"data-0000{n}-of-00003.arrow" for n in range(3)]


def test_another_split_is_read_when_the_recipe_says_so(saved):
    assert prompts_of(saved, split="test") == ["test 0", "test 1"]


def test_a_split_that_is_not_there_is_refused_with_those_that_are(saved):
    with pytest.raises(RecipeError, match=r"ds: validation[\s\S]*train, test[\s\S]*prompts\.split"):
        find_files(Prompts(path=str(saved), split="validation"))


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_folder_of_one_split_may_be_named(saved, split):
    assert prompts_of(saved / split) == ([*TRAIN] if split == "train" else ["test 0", "test 1"])


def test_a_split_that_the_folder_says_it_is_not_is_refused(saved):
    state = saved / "train" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"_split": "train"}))
    assert prompts_of(saved / "train") == TRAIN
    with pytest.raises(RecipeError, match="one of: train"):
        find_files(Prompts(path=str(saved / "train"), split="test"))


def test_the_order_is_the_one_in_state_json_not_the_names(saved):
    state = saved / "train" / "state.json"
    said = json.loads(state.read_text())
    state.write_text(json.dumps(said | {"_data_files": said["_data_files"][::-1]}))
    assert names(saved) == [f"data-0000{n}-of-00003.arrow" for n in (2, 1, 0)]


def test_it_is_found_inside_folders_lists_and_globs_beside_other_files(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in" / "a.jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "in" / "z.jsonl").write_text('{"prompt": "z"}\n')
    assert prompts_of(Path("in")) == ["a", *TRAIN, "z"]
    assert prompts_of(Path("i*")) == ["a", *TRAIN, "z"]
    assert prompts_of(Path("in/*")) == ["a", *TRAIN, "z"]
    files = find_files(Prompts(path=["in/z.jsonl", "in/ds", "in"]))
    assert [file.path for file in files][:2] == ["in/z.jsonl", "in/ds/train/data-00000-of-00003.arrow"]
    assert files[0] == SourceFile("in/z.jsonl", None, named=True)
    assert files[1].format == "huggingface"
    assert len(files) == 5


def test_a_dot_in_front_of_the_path_is_no_hidden_folder(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "in")
    assert prompts_of(Path("./ds")) == TRAIN
    monkeypatch.chdir(saved)
    assert prompts_of(Path(".")) == TRAIN
    assert prompts_of(Path("../ds")) == TRAIN


def test_with_another_format_all_files_are_meant(saved):
    assert "state.json" in names(saved, format="json")


def test_a_state_json_of_something_else_is_a_file_like_others(tmp_path):
    (tmp_path / "state.json").write_text('{"step": 10}\n')
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n')
    assert names(tmp_path) == ["a.jsonl", "state.json"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"_data_files": [{"filename": "../secret.arrow"}]}, "no file of the folder"),
        ({"_data_files": [{"name": "x"}]}, "no file of the folder"),
        ({"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}, "a selection"),
        ({}, "does not list its files"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(saved, state, words):
    (saved / "train" / "state.json").write_text(json.dumps(state))
    with pytest.raises(SourceError, match=rf"state\.json: .*{words}"):
        find_files(Prompts(path=str(saved)))


@pytest.mark.parametrize(
    "content", [b"", b'{"splits": ["tr', b"no JSON", b"\0" * 50, b"[" * 100_000, b"version https://git-lfs"]
)
@pytest.mark.parametrize("name", ["dataset_dict.json", "train/state.json", "test/state.json"])
def test_what_says_which_files_are_rows_must_be_json(saved, name, content):
    (saved / name).write_bytes(content)
    for path in (saved, saved.parent, saved / "*"):
        with pytest.raises(SourceError, match=rf"{name}: it is not JSON"):
            find_files(Prompts(path=str(path), format="huggingface" if path == saved else "auto"))


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"error": "denied"}', '{"splits": "train"}'])
def test_a_dataset_dict_that_names_no_splits_is_refused(saved, content):
    (saved / "dataset_dict.json").write_text(content)
    with pytest.raises(SourceError, match=r"dataset_dict\.json: it does not list its splits"):
        find_files(Prompts(path=str(saved)))


def test_what_lies_beside_the_rows_is_named_and_not_read(saved, tmp_path):
    extra = [saved / name for name in ("extra.jsonl", "more.arrow", "other/a.jsonl", "train/b.jsonl")]
    (saved / "other").mkdir()
    for file in extra:
        file.write_text('{"prompt": "never"}\n')
    loaded = load_prompts(Prompts(path=str(saved)))
    assert prompts_of(saved) == TRAIN
    assert [file.path for file in loaded.files if file.beside] == sorted(map(str, extra))
    files = find_files(Prompts(path=[str(saved), str(extra[0])]))
    assert [file for file in files if file.path == str(extra[0])] == [SourceFile(str(extra[0]), named=True)]
    before = source_digest(Prompts(path=str(saved)))
    extra[0].unlink()
    assert source_digest(Prompts(path=str(saved))) != before  # what is said of the source is another thing now


def test_missing_parts_are_refused(saved):
    (saved / "train" / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(SourceError, match=r"data-00001-of-00003\.arrow: FileNotFoundError"):
        prompts_of(saved)
    (saved / "train" / "state.json").unlink()
    with pytest.raises(SourceError, match=r"train/state\.json: FileNotFoundError"):
        find_files(Prompts(path=str(saved)))


def test_parquet_files_named_by_split_as_on_the_hub(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    data = tmp_path / "data"
    data.mkdir()
    dataset("train", 3).select([0, 1]).to_parquet(str(data / "train-00000-of-00002.parquet"))
    dataset("train", 3).select([2]).to_parquet(str(data / "train-00001-of-00002-0123456789abcdef.parquet"))
    assert prompts_of(tmp_path, split="any") == TRAIN[:3]  # a folder of one split only is read as it is
    dataset("held", 1).to_parquet(str(data / "test_sft-00000-of-00001.parquet"))
    assert prompts_of(tmp_path) == TRAIN[:3]
    assert prompts_of(tmp_path, split="test_sft") == ["held 0"]
    assert prompts_of(data / "test*.parquet") == ["held 0"]
    with pytest.raises(RecipeError, match="one of: test_sft, train"):
        find_files(Prompts(path=str(tmp_path), split="test"))
