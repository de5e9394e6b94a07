"""A recipe's files as one table: order, places, counts, and what must stop a run."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from draftmill.dataset.schema import LOADED, REJECTED
from draftmill.errors import RecipeError, SourceError
from draftmill.prompts.files import find_files
from draftmill.prompts.found import FileSummary
from draftmill.prompts.load import load_prompts
from draftmill.prompts.opening import shown
from draftmill.recipe import Prompts
from draftmill.records import Reason


def write(file: Path, *rows: object) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def texts(prompts: Prompts) -> list[str]:
    column = load_prompts(prompts).table["messages"].to_pylist()
    return [json.loads(text)["messages"][-1]["content"] for text in column]


def found(paths: list[str]) -> list[str]:
    return [file.path for file in find_files(Prompts(path=paths))]


def test_rows_are_prompts_or_rejections_and_the_counts_close(tmp_path):
    path = write(
        tmp_path / "a.jsonl", {"id": "x", "prompt": "one"}, {"prompt": ""}, {"id": 7, "messages": "no"}, {"text": "two"}
    )
    loaded = load_prompts(Prompts(path=path))
    assert loaded.table.schema == LOADED
    assert loaded.table.select(["prompt_id", "source", "line"]).to_pylist() == [
        {"prompt_id": "x", "source": path, "line": 1},
        {"prompt_id": "a.jsonl:4", "source": path, "line": 4},
    ]
    assert loaded.table["messages"][0].as_py() == '{"messages":[{"role":"user","content":"one"}],"tools":null}'
    assert loaded.rejected.schema == REJECTED
    assert [(r["reason"], r["prompt_id"], r["source"], r["line"]) for r in loaded.rejected.to_pylist()] == [
        (Reason.PROMPT_INVALID, "a.jsonl:2", path, 2),
        (Reason.PROMPT_INVALID, "7", path, 3),
    ]
    columns = ("id", "prompt", "messages", "text")
    assert loaded.files == [FileSummary(path, "jsonl", {"prompt": 1, "text": 1}, 4, 2, columns)]


@pytest.mark.parametrize(
    ("own", "shown_id"),
    [
        (1, "1"),
        ("1", "1"),
        (1.0, "1.0"),
        (0, "0"),
        (True, "true"),
        (9007199254740993, "9007199254740993"),
        ({"n": 1}, '{"n": 1}'),
        ("a/b c?.jsonl", "a/b c?.jsonl"),
        (None, "a.jsonl:1"),
        ("", "a.jsonl:1"),
        ("\ud800", "\\ud800"),
    ],
)
def test_ids_are_kept_as_given(tmp_path, own, shown_id):
    path = write(tmp_path / "a.jsonl", {"id": own, "prompt": "p"})
    assert load_prompts(Prompts(path=path)).table["prompt_id"].to_pylist() == [shown_id]


def test_fields_map_the_id_too_and_unknown_ones_are_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", {"uuid": "u", "dialogue": [{"role": "user", "content": "d"}]})
    loaded = load_prompts(Prompts(path=path, fields={"messages": "dialogue", "id": "uuid"}))
    assert loaded.table["prompt_id"].to_pylist() == ["u"]
    with pytest.raises(RecipeError, match="mesages") as caught:
        load_prompts(Prompts(path=path, fields={"mesages": "dialogue"}))
    assert "messages" in caught.value.expected


def test_limit_is_the_first_prompts_over_all_files(tmp_path):
    write(tmp_path / "in" / "a.jsonl", {"prompt": "1"}, {"prompt": ""}, {"prompt": "2"})
    write(tmp_path / "in" / "b.jsonl", {"prompt": "3"}, {"prompt": "4"})
    assert texts(Prompts(path=str(tmp_path / "in"), limit=3)) == ["1", "2", "3"]
    loaded = load_prompts(Prompts(path=str(tmp_path / "in"), limit=2))
    assert [file.path.rsplit("/", 1)[-1] for file in loaded.files] == ["a.jsonl"]


@pytest.mark.parametrize("rows", [[], [{"prompt": ""}, {"foo": 1}]])
def test_a_source_without_a_prompt_stops_the_run(tmp_path, rows):
    path = write(tmp_path / "a.jsonl", *rows)
    with pytest.raises(SourceError, match=r"a\.jsonl") as caught:
        load_prompts(Prompts(path=path))
    assert f"{len(rows)} rows" in caught.value.value
    assert (":1: prompt is empty" in caught.value.value) == bool(rows)


def test_one_unreadable_file_stops_the_run_although_others_are_good(tmp_path):
    write(tmp_path / "in" / "a.jsonl", {"prompt": "1"})
    (tmp_path / "in" / "b.jsonl").write_bytes(gzip.compress(b'{"prompt": "2"}\n' * 50)[:-12])
    with pytest.raises(SourceError, match=r"b\.jsonl"):
        load_prompts(Prompts(path=str(tmp_path / "in")))


def test_a_folder_as_spark_writes_it(tmp_path):
    folder = tmp_path / "out"
    for n in (2, 0, 1):
        part = folder / f"part-0000{n}.json.gz"
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(gzip.compress(json.dumps({"prompt": f"p{n}"}).encode()))
    write(folder / "part-00003.json")
    write(folder / "_temporary" / "0" / "part-00009.json", {"prompt": "never"})
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-00000.json.gz.crc", ".DS_Store"):
        (folder / name).write_bytes(b"crc")
    (folder / "notes.txt").write_text("not a data file")
    loaded = load_prompts(Prompts(path=str(folder)))
    assert texts(Prompts(path=str(folder))) == ["p0", "p1", "p2"]
    assert [(Path(f.path).name, f.format, f.rows) for f in loaded.files] == [
        ("notes.txt", None, 0),
        ("part-00000.json.gz", "jsonl", 1),
        ("part-00001.json.gz", "jsonl", 1),
        ("part-00002.json.gz", "jsonl", 1),
        ("part-00003.json", "jsonl", 0),
    ]


def test_a_named_file_of_no_known_format_is_refused(tmp_path):
    file = tmp_path / "data.bin"
    file.write_bytes(b"\x93ODD....")
    with pytest.raises(SourceError, match=r"data\.bin, which begins with b'.x93ODD") as caught:
        load_prompts(Prompts(path=str(file)))
    assert "jsonl" in caught.value.expected


@pytest.mark.parametrize("path", ["missing.jsonl", "missing/", "*.jsonl"])
def test_a_path_that_matches_nothing_is_a_fault_of_the_recipe(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="no such prompts") as caught:
        find_files(Prompts(path=path))
    assert caught.value.value == path


def test_globs_lists_and_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "d/b.jsonl",
        "d/a.jsonl",
        "d/_skip.jsonl",
        "d/_hidden/c.jsonl",
        "d/sub/c.jsonl",
        "odd[1].jsonl",
        "_named.jsonl",
    ):
        write(Path(name), {"prompt": name})
    assert found(["d/*.jsonl"]) == ["d/a.jsonl", "d/b.jsonl"]
    assert found(["d/**/*.jsonl"]) == ["d/a.jsonl", "d/b.jsonl", "d/sub/c.jsonl"]
    assert found(["d"]) == ["d/a.jsonl", "d/b.jsonl", "d/sub/c.jsonl"]
    assert found(["odd[1].jsonl"]) == ["odd[1].jsonl"]
    # Named outright, so it is meant; a file named twice is read once.
    assert found(["_named.jsonl", "d/b.jsonl", "d"]) == ["_named.jsonl", "d/b.jsonl", "d/a.jsonl", "d/sub/c.jsonl"]


def test_linked_folders_are_read_and_circles_end(tmp_path):
    write(tmp_path / "real" / "a.jsonl", {"prompt": "a"})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "back").symlink_to(tmp_path / "in")
    names = [str(Path(file).relative_to(tmp_path)) for file in found([str(tmp_path / "in")])]
    assert names == ["in/link/a.jsonl"]


def test_secrets_of_a_url_are_never_shown():
    assert shown("https://user:pw@host/a.jsonl?signature=s#f") == "https://host/a.jsonl"
    assert shown("https://user:pw@host") == "https://host"
    assert shown("s3://bucket/odd?key#1.jsonl") == "s3://bucket/odd?key#1.jsonl"
    assert shown("/a/b?c") == "/a/b?c"


def test_a_long_reject_message_is_cut(tmp_path):
    path = write(tmp_path / "a.jsonl", {"prompt": "p"}, {"messages": [{"role": "x" * 10_000, "content": "c"}]})
    (detail,) = load_prompts(Prompts(path=path)).rejected["detail"].to_pylist()
    assert detail.startswith("unknown role 'xxx")
    assert len(detail) <= 500


def test_the_first_words_about_a_file_are_its_columns_and_bounded(tmp_path):
    path = write(tmp_path / "a.jsonl", {f"key {n}": n for n in range(500)}, {"prompt": "p", "x" * 10_000: 1})
    (file,) = load_prompts(Prompts(path=path)).files
    assert len(file.columns) <= 100
    assert file.columns[0] == "key 0"


def test_a_limit_inside_a_file_is_said(tmp_path):
    path = write(tmp_path / "a.jsonl", *({"prompt": str(n)} for n in range(3)))
    assert [load_prompts(Prompts(path=path, limit=n)).files[0].read_to_end for n in (2, 3)] == [False, True]


def test_a_kind_of_file_that_is_known_to_hold_no_prompts_is_named(tmp_path):
    (tmp_path / "p.xlsx").write_bytes(b"PK\x03\x04....[Content_Types].xml")
    with pytest.raises(SourceError, match="an Office file") as caught:
        load_prompts(Prompts(path=str(tmp_path / "p.xlsx")))
    assert "CSV" in caught.value.remedy


@pytest.mark.parametrize("name", [b"\xff.jsonl", "\U0001f600 [1] #?.jsonl".encode()])
def test_files_of_any_name(tmp_path, name):
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    write(file, {"prompt": "p"})
    loaded = load_prompts(Prompts(path=str(tmp_path)))
    assert texts(Prompts(path=str(tmp_path))) == ["p"]
    assert loaded.table["source"].to_pylist() == [loaded.files[0].path]
