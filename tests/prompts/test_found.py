"""What is said about a source before anything is rendered."""

from __future__ import annotations

import json

from draftmill.prompts.found import FileSummary, Found, found_lines


def said(*files: FileSummary) -> list[str]:
    found = Found()
    for file in files:
        found.add(file)
    return found_lines(json.loads(json.dumps(found.to_json())))


def test_a_file_in_a_line():
    file = FileSummary("prompts/a.jsonl", "jsonl", {"messages": 1201}, 1204, 3, ("id", "messages", "meta"))
    assert said(file) == [
        "prompts/a.jsonl: jsonl, shape messages (columns: id, messages, meta), 1,204 rows, 3 rejected"
    ]


def test_several_shapes_are_counted():
    file = FileSummary("a", "csv", {"prompt": 2, "text": 1}, 3, 0, ("prompt", "text"))
    assert said(file) == ["a: csv, shapes prompt 2, text 1 (columns: prompt, text), 3 rows"]


def test_nothing_good_one_row_and_a_limit():
    assert said(FileSummary("a", "jsonl", {}, 1, 1, ())) == ["a: jsonl, shape none (columns: none), 1 row, 1 rejected"]
    limited = FileSummary("a", "jsonl", {"text": 1}, 1, 0, ("text",), False)
    assert said(limited)[0].endswith("1 row, read up to prompts.limit")


def test_files_of_no_known_format_are_named():
    left = [FileSummary(f"notes-{n}.txt", None, {}, 0, 0) for n in range(12)]
    (line,) = said(*left)
    assert line.startswith("left out, of no known format: notes-0.txt, notes-1.txt")
    assert line.endswith("notes-9.txt and 2 more")


def test_files_with_a_fault_are_named_however_many_there_are():
    good = [FileSummary(f"good-{n}.jsonl", "jsonl", {"prompt": 1}, 1, 0) for n in range(500)]
    bad = [FileSummary(f"bad-{n}.jsonl", "jsonl", {}, 2, 2) for n in range(80)]
    notes = [FileSummary(f"n-{n}.txt", None, {}, 0, 0) for n in range(500)]
    lines = said(*good, *bad[:1], *notes, FileSummary("odd.json", None, {}, 0, 0))
    assert lines[10].startswith("bad-0.jsonl: jsonl, shape none")
    assert lines[11] == "and 490 more files; in all 502 rows, 2 rejected, shape prompt"
    assert lines[12].startswith("left out, of no known format: odd.json, n-0.txt")
    assert lines[12].endswith("n-8.txt and 491 more")
    lines = said(*good, *bad)
    assert len(lines) == 61
    assert lines[-1].startswith("and 520 more files, 30 of them with rejected rows only; in all")


def test_files_beside_a_saved_folder_are_named():
    (line,) = said(FileSummary("ds/extra.jsonl", None, {}, 0, 0, beside=True))
    assert line == "left out, beside the rows of a saved folder: ds/extra.jsonl"


def test_many_files_and_many_columns_stay_a_screen():
    columns = tuple(f"c{n}" for n in range(40))
    lines = said(*(FileSummary(f"part-{n}", "parquet", {"prompt": 9}, 10, 1, columns) for n in range(1000)))
    assert len(lines) == 11
    assert "c11 and 28 more)" in lines[0]
    assert lines[-1] == "and 990 more files; in all 10,000 rows, 1,000 rejected, shape prompt"
