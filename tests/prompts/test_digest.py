"""The digest of a source: another one whenever the prompts may be others, and nothing fetched that need not be."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from draftmill.errors import RecipeError, SourceError
from draftmill.prompts import digest as module
from draftmill.prompts.digest import source_digest
from draftmill.recipe import Prompts


def write(file: Path, text: str) -> str:
    file.write_text(json.dumps({"prompt": text}) + "\n")
    return str(file)


def test_it_follows_content_names_and_keys(tmp_path):
    path = write(tmp_path / "a.jsonl", "p")
    first = source_digest(Prompts(path=path))
    assert source_digest(Prompts(path=[path])) == first
    changed = [
        Prompts(path=path, limit=1),
        Prompts(path=path, fields={"prompt": "text"}),
        Prompts(path=path, turns="all"),
        Prompts(path=write(tmp_path / "b.jsonl", "p")),
    ]
    assert len({first, *map(source_digest, changed)}) == 5
    write(tmp_path / "a.jsonl", "q")
    assert source_digest(Prompts(path=path)) != first


def test_a_local_file_of_the_same_size_and_time_is_another_one(tmp_path):
    path = write(tmp_path / "a.jsonl", "p")
    first, when = source_digest(Prompts(path=path)), os.stat(path)
    write(tmp_path / "a.jsonl", "q")
    os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
    assert source_digest(Prompts(path=path)) != first


def test_an_object_is_known_by_its_etag_and_not_fetched(bucket, monkeypatch):
    fs, folder = fsspec.core.url_to_fs(bucket)
    fs.pipe_file(f"{folder}/p/a.jsonl", b'{"prompt": "a"}\n')
    fs.pipe_file(f"{folder}/p/b.jsonl", b'{"prompt": "b"}\n')

    def never(path: str) -> Any:
        raise AssertionError(f"{path} was fetched")

    monkeypatch.setattr(module, "open_raw", never)
    first = source_digest(Prompts(path=f"{bucket}/p"))
    assert source_digest(Prompts(path=f"{bucket}/p")) == first
    fs.pipe_file(f"{folder}/p/b.jsonl", b'{"prompt": "c"}\n')
    assert source_digest(Prompts(path=f"{bucket}/p")) != first


@pytest.mark.parametrize(
    ("said", "equal"),
    [
        ({"ETag": '"strong"'}, True),
        ({"etag": '"strong"', "size": 3}, True),
        ({"ETag": 'W/"weak"'}, False),
        ({"ETag": None}, False),
        ({}, False),
    ],
)
def test_only_a_strong_etag_stands_for_the_bytes(monkeypatch, said, equal):
    class Store:
        def info(self, path: str) -> dict[str, Any]:
            return said

    contents = iter([b"one", b"two"])
    monkeypatch.setattr(module, "file_system", lambda url: (Store(), url))
    monkeypatch.setattr(module, "open_raw", lambda path: io.BytesIO(next(contents)))
    prompts = Prompts(path="https://host/a.jsonl")
    assert (source_digest(prompts) == source_digest(prompts)) is equal


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(RecipeError, match="no such prompts"):
        source_digest(Prompts(path=str(tmp_path / "none")))
    with pytest.raises(SourceError):
        source_digest(Prompts(path="http://127.0.0.1:9/none.jsonl"))
