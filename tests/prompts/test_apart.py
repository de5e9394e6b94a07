"""A recipe that would read its own dataset is refused before anything is read; one beside it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftmill.errors import RecipeError
from draftmill.prompts.apart import check_apart
from draftmill.recipe import Prompts


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; with `data`, but without the dataset: nothing was written yet."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "a.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(path: str | list[str], dataset: str) -> None:
    check_apart(Prompts(path=path), dataset)


@pytest.mark.parametrize(
    ("path", "dataset"),
    [
        (".", "out"),
        ("./", "file://{here}/out"),
        ("data", "data/out"),
        ("data", "data"),
        ("data/", "data/sub/deep/out/"),
        ("{here}", "data/out"),
        ("file://{here}/data", "data/out"),
        ("FILE://{here}/data", "data/out"),
        ("data/../data", "data/sub/../out"),
        ("*", "out"),
        ("o*", "out"),
        ("data/*", "data/out"),
        ("data/**", "data/out"),
        ("**/*.parquet", "data/out"),
        ("**/*", "out"),
        ("data/**/*.json", "data/out"),
        ("data/*/*/*.parquet", "data/out"),
        ("data/[np]*", "data/new"),
        ("out/prompts", "out"),
        ("out/shards/*.parquet", "out"),
        ("s3://b", "s3://b/out"),
        ("s3://b/", "s3://b/out/"),
        ("s3://b/p", "s3://b/p"),
        ("S3://b/p/", "s3://b/p/x/out"),
        ("s3a://b/p", "s3://b/p/out"),
        ("s3://b/p/*", "s3://b/p/out"),
        ("s3://b/**/*.parquet", "s3://b/p/out"),
        ("s3://b/out/prompts", "s3://b/out"),
    ],
)
def test_inside_is_refused(here, path, dataset):
    path, dataset = path.format(here=here), dataset.format(here=here)
    with pytest.raises(RecipeError, match="the dataset lies inside its own prompts") as caught:
        check(path, dataset)
    assert dataset in str(caught.value.value)
    with pytest.raises(RecipeError):
        check(["data/a.jsonl", path], dataset)


@pytest.mark.parametrize(
    ("path", "dataset"),
    [
        ("data", "out"),
        ("data", "data-out"),
        ("data", "."),
        ("data/a.jsonl", "data"),
        ("data/*.jsonl", "data/out"),
        ("data/**/*.jsonl", "data/out"),
        ("data/in*", "data/out"),
        ("out/mine", "out"),
        ("data", "data/.out"),
        ("data", "data/_draftmill/out"),
        (".", "s3://b/out"),
        ("s3://b/p", "out"),
        ("s3://b/p", "s3://b/p2"),
        ("s3://b/p", "s3://b/out"),
        ("s3://b/p", "s3://other/p/out"),
        ("s3://b/p/*.jsonl", "s3://b/p/out"),
        ("s3://b/p/_x", "s3://b/p"),
        ("https://host/out", "out"),
        ("out[1]", "out1"),
    ],
)
def test_beside_is_not(path, dataset):
    Path("out[1]").mkdir()
    check(path, dataset)


def test_links_are_followed(here):
    (here / "real").mkdir()
    os.symlink(here / "real", here / "data" / "link")
    for path, dataset in [("data", "data/link"), ("data", "data/link/out"), ("real", "data/link/out")]:
        with pytest.raises(RecipeError):
            check(path, dataset)
    with pytest.raises(RecipeError):
        check("data/link", "real/out")
    with pytest.raises(RecipeError):
        check("data/link/*", "real/out")
