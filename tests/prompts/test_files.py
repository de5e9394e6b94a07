"""What paths on disk mean beyond what test_load.py reads: order, names, faults of the disk, wide encodings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftmill.errors import SourceError
from draftmill.prompts.files import SourceFile, find_files
from draftmill.prompts.opening import head, open_raw
from draftmill.recipe import Prompts
from draftmill.sources import jsonl


def found(*paths: str) -> list[SourceFile]:
    return find_files(Prompts(path=list(paths)))


def test_folders_are_read_level_by_level(tmp_path):
    names = ["a/x.jsonl", "a-b/x.jsonl", "a.jsonl", "b/_x/c.jsonl", "b/.y/c.jsonl", "B.jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    paths = [str(Path(file.path).relative_to(tmp_path)) for file in found(str(tmp_path))]
    assert paths == ["B.jsonl", "a/x.jsonl", "a-b/x.jsonl", "a.jsonl"]
    assert [file.path for file in found(f"file://{tmp_path}")] == [file.path for file in found(str(tmp_path))]


def test_a_file_that_is_named_anywhere_is_named(tmp_path):
    (tmp_path / "a.jsonl").touch()
    (tmp_path / "b.jsonl").touch()
    files = found(str(tmp_path), str(tmp_path / "b.jsonl"))
    assert [(Path(file.path).name, file.named) for file in files] == [("a.jsonl", False), ("b.jsonl", True)]


def test_what_the_disk_refuses_is_a_source_error(tmp_path):
    with pytest.raises(SourceError, match="File name too long"):
        found(str(tmp_path / ("x" * 300)))
    with pytest.raises(SourceError, match=r"cannot be read[\s\S]*Is a directory"), open_raw(str(tmp_path)):
        pass


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_lines_have_the_line_numbers_of_an_editor(tmp_path, encoding):
    lines = ["", json.dumps({"prompt": "ü" * 70_000}), "{torn", json.dumps({"prompt": "b\u2028"}, ensure_ascii=False)]
    file = tmp_path / "a.jsonl"
    file.write_bytes("\r\n".join(lines).encode(encoding))
    rows = list(jsonl.read(str(file)))
    assert [(row.line, row.value and row.value["prompt"][-1]) for row in rows] == [(2, "ü"), (3, None), (4, "\u2028")]
    assert head(str(file)).startswith(b'\r\n{"prompt"')
