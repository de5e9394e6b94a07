"""A part of a source that is no longer prompts stops the run, whatever it became and however many parts there are."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from draftmill import plugins
from draftmill.errors import SourceError
from draftmill.prompts.found import Found, found_lines
from draftmill.prompts.load import Loaded, load_prompts
from draftmill.prompts.promise import Promise, promise
from draftmill.recipe import Prompts

ROWS = [{"prompt": "one"}, {"prompt": "two"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def arrow() -> bytes:
    sink = io.BytesIO()
    feather.write_feather(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


GOOD = {
    "b.jsonl": LINES,
    "b.ndjson": LINES,
    "b.json": json.dumps(ROWS, indent=1).encode(),
    "b.csv": b"id,prompt\n1,one\n",
    "b.tsv": b"id\tprompt\n1\tone\n",
    "b.parquet": parquet(),
    "b.arrow": arrow(),
    "b.jsonl.gz": gzip.compress(LINES),
    "b.csv.gz": gzip.compress(b"id,prompt\n1,one\n"),
    "part-0.gz": gzip.compress(LINES),
}
"""A part as it was, under each kind of name."""

BECAME = {
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
    "a page": b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n",
    "an old page": b"<HTML><BODY>502 Bad Gateway</BODY></HTML>",
    "a server's message": b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ExpiredToken</Code></Error>',
    "a message on one line": b"<Error><Code>NoSuchKey</Code></Error>",
    "words": b"Not Found",
    "zeros": b"\0" * 4096,
    "UTF-16 without a mark": LINES.decode().encode("utf-16-le"),
    "a zip": b"PK\x03\x04" + b"\0" * 60,
    "random bytes": bytes(range(128, 256)) * 8,
}


def with_good_parts(folder: Path, *, parts: int = 1) -> Path:
    folder.mkdir()
    for number in range(parts):
        (folder / f"a-{number:04}.jsonl").write_text(json.dumps({"prompt": f"good {number}"}) + "\n")
    return folder


def load(folder: Path, **keys: object) -> Loaded:
    return load_prompts(Prompts(path=str(folder), **keys))


@pytest.mark.parametrize("name", GOOD)
def test_as_it_was_it_is_read(tmp_path, name):
    folder = with_good_parts(tmp_path / "in")
    (folder / name).write_bytes(GOOD[name])
    assert load(folder).table.num_rows > 1


@pytest.mark.parametrize("became", BECAME)
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("parts", [1, 15])
def test_what_it_may_become_stops_the_run_by_name(tmp_path, name, became, parts):
    folder = with_good_parts(tmp_path / "in", parts=parts)
    (folder / name).write_bytes(BECAME[became])
    with pytest.raises(SourceError) as caught:
        load(folder)
    assert str(folder / name) in str(caught.value.value)
    assert all((caught.value.what, caught.value.expected, caught.value.remedy))


@pytest.mark.parametrize("name", ["b.jsonl", "b.csv", "b.jsonl.gz"])
@pytest.mark.parametrize("became", ["a Git LFS pointer", "a page", "a server's message", "zeros"])
def test_also_when_the_recipe_says_the_format(tmp_path, name, became):
    folder = tmp_path / "in"
    folder.mkdir()
    said = promise_format(name)
    (folder / f"a.{said}").write_bytes(GOOD[f"b.{said}"])
    (folder / name).write_bytes(BECAME[became])
    with pytest.raises(SourceError, match=name):
        load(folder, format=said)


def promise_format(name: str) -> str:
    return "csv" if ".csv" in name else "jsonl"


@pytest.mark.parametrize("name", [*GOOD, "b.jsonl.zst", "b.feather", "B.PARQUET", "part-1.GZ"])
def test_no_bytes_are_an_empty_part_of_plain_text_only(tmp_path, name):
    folder = with_good_parts(tmp_path / "in")
    (folder / name).touch()
    if promise(name) is Promise.TEXT and name.rsplit(".", 1)[-1] not in ("gz", "zst"):
        assert load(folder).table.num_rows == 1
        return
    with pytest.raises(SourceError, match=rf"{name}, which is empty"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("b.jsonl.gz", gzip.compress(b"")),
        ("part-1.gz", gzip.compress(b"")),
        ("b.jsonl", b"\n \n"),
        ("b.json", b"[]"),
        ("b.csv", b"id,prompt\n"),
        ("b.csv", b"\xef\xbb\xbf"),
        ("b.csv.gz", gzip.compress(b"prompt\n")),
    ],
)
def test_parts_without_rows_go_on(tmp_path, name, content):
    folder = with_good_parts(tmp_path / "in")
    (folder / name).write_bytes(content)
    assert load(folder).table.num_rows == 1


@pytest.mark.parametrize("name", ["notes.txt", "README.md", "picture.png", "a.sha256", "images.tar.gz", "old.zip"])
@pytest.mark.parametrize("became", ["a Git LFS pointer", "words", "zeros"])
def test_other_names_are_none_of_its_business(tmp_path, name, became):
    folder = with_good_parts(tmp_path / "in")
    content = BECAME[became]
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    loaded = load(folder)
    assert loaded.table.num_rows == 1
    assert [Path(file.path).name for file in loaded.files if file.format is None] == [name]


@pytest.mark.parametrize("rows", [["not json"], ["[1]", "3"], ['{"prompt": "half'], ["x"] * 1000])
def test_a_file_alone_is_said_to_have_no_prompt(tmp_path, rows):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(rows))
    with pytest.raises(SourceError, match=r"no prompt in the source[\s\S]*a\.jsonl:1:"):
        load(tmp_path / "in")
    (tmp_path / "in" / "z.jsonl").write_text('{"prompt": "good"}')
    with pytest.raises(SourceError, match=r"no row can be read[\s\S]*a\.jsonl, [\d,]+ rows?, line 1"):
        load(tmp_path / "in")


def test_one_readable_row_or_faults_of_shape_go_on_and_are_said(tmp_path):
    folder = with_good_parts(tmp_path / "in", parts=12)
    (folder / "b.jsonl").write_text('broken\n{"foo": 1}\n')
    (folder / "c.jsonl").write_text('{"error": "denied"}\n')
    (folder / "d.jsonl").write_text('broken\n{"prompt": "good"}\n')
    loaded = load(folder)
    assert loaded.rejected.num_rows == 4
    assert pc.sum(pc.equal(loaded.rejected["source"], str(folder / "c.jsonl"))).as_py() == 1
    found = Found()
    for file in loaded.files:
        found.add(file)
    said = "\n".join(found_lines(found.to_json()))
    assert f"{folder}/b.jsonl: jsonl, shape none" in said
    assert f"{folder}/c.jsonl: jsonl, shape none" in said
    assert "and 3 more files; in all 17 rows, 4 rejected" in said


def test_a_table_whose_only_line_is_no_header_is_refused(tmp_path):
    folder = with_good_parts(tmp_path / "in")
    (folder / "b.csv").write_text("404: no such key\n")
    with pytest.raises(SourceError, match=r"b\.csv, it has no rows and no column that is known: 404"):
        load(folder)
    (folder / "b.csv").write_text("dialogue\n")
    assert load(folder, fields={"messages": "dialogue"}).table.num_rows == 1


def test_every_source_promises_something_of_its_own():
    suffixes = [s for name in plugins.names("sources") for s in plugins.load("sources", name).SUFFIXES]
    assert len(suffixes) == len(set(suffixes))
    assert all(promise(f"a{suffix}.gz") is promise(f"A{suffix.upper()}") for suffix in suffixes)
    assert promise("a.gz") is Promise.PACKED
    assert promise("a.txt") is promise("jsonl") is Promise.NOTHING
