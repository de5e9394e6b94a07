"""JSON as one value: each test makes one kind of file and says what must come of it."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import SourceError
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import json as json_source


def rows_of(tmp_path: Path, content: str | bytes) -> list[SourceRow]:
    file = tmp_path / "rows.json"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(json_source.read(str(file)))


def values(rows: list[SourceRow]) -> list[object]:
    return [row.value for row in rows]


ROWS = [{"prompt": "a"}, {"prompt": "b\u2028c", "n": 2}]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8])
def test_an_array_is_its_objects_numbered_from_one(tmp_path, indent, bom):
    rows = rows_of(tmp_path, bom + json.dumps(ROWS, indent=indent, ensure_ascii=False).encode())
    assert [(row.line, row.value) for row in rows] == [(1, ROWS[0]), (2, ROWS[1])]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings_are_told_by_their_byte_order_mark(tmp_path, encoding):
    text = json.dumps([{"prompt": "ünï 😀"}], ensure_ascii=False)
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    assert values(rows_of(tmp_path, (mark + text).encode(encoding))) == [{"prompt": "ünï 😀"}]


def test_a_wide_encoding_that_breaks_off_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"not utf-16[\s\S]*rows\.json"):
        rows_of(tmp_path, json.dumps(ROWS).encode("utf-16")[:-1])


@pytest.mark.parametrize(
    "around",
    [
        {"data": ROWS},
        {"version": "1.1", "rows": ROWS, "tags": ["x"], "license": None},
        {"anything": ROWS},
    ],
)
def test_an_object_around_the_rows_is_opened(tmp_path, around):
    rows = rows_of(tmp_path, json.dumps(around, indent=1))
    assert [(row.line, row.value) for row in rows] == [(1, ROWS[0]), (2, ROWS[1])]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "p", "data": ROWS},
        {"messages": [{"role": "user", "content": "c"}]},
        {"dialogue": [{"role": "user", "content": "c"}]},
        {"dialogue": [{"from": "human", "value": "c"}]},
        {"train": ROWS, "test": ROWS},
        {"prompt": {"0": "a", "1": "b"}},
        {"data": []},
        {"data": ["a", "b"]},
    ],
)
def test_an_object_that_is_a_row_stays_one(tmp_path, row):
    assert values(rows_of(tmp_path, json.dumps(row, indent=1))) == [row]


def test_a_column_that_the_recipe_names_is_no_wrapper(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"dialog": [{"speaker": "x"}]}))
    (row,) = json_source.read(str(file), columns=frozenset({"dialog"}))
    assert row.value == {"dialog": [{"speaker": "x"}]}


def test_values_after_each_other_are_read_like_an_array(tmp_path):
    content = "\n".join(json.dumps(row, indent=2) for row in ROWS)
    assert values(rows_of(tmp_path, content)) == ROWS
    assert values(rows_of(tmp_path, "[]\n")) == []


def test_what_is_no_object_is_one_fault(tmp_path):
    rows = rows_of(tmp_path, '["text", 1, null, [2], {"prompt": "p"}]')
    assert [row.fault for row in rows[:4]] == [
        f"{kind}, expected an object" for kind in ("text", "a number", "null", "a list")
    ]
    assert rows[4] == SourceRow(5, {"prompt": "p"}, None)


def test_numbers_beyond_64_bits_nan_and_twice_named_keys_do_not_matter(tmp_path):
    (row,) = rows_of(tmp_path, '[{"id": 12345678901234567890123, "s": NaN, "p": 1e400, "k": 1, "k": 2}]')
    assert row.value is not None
    assert (row.value["id"], row.value["p"], row.value["k"]) == (12345678901234567890123, float("inf"), 2)


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ('[\n {"p": 1},\n {"p": 2},\n]\n', "line 4, column 1", "a comma before the closing bracket"),
        ('[{"p": 1} {"p": 2}]', "line 1, column 11", "no comma in between"),
        ('[{"p": 1},\n {"p": 2}', "line 2, column 10", "half written?"),
        ('[{"p": 1},\n {"p": "ab', "line 2, column 8", ""),
        ('[\n{"p": 1},\n{"p" 2}]', "line 3, column 6", ""),
        ('[{"p": 1}]\nmore', "line 2, column 1", "more text behind the end"),
        ('[{"p": 1}],', "line 1, column 11", "more text behind the end"),
        ("words", "line 1, column 1", "no array and no object"),
        ('[\n"' + "\udce9", "line 2, column 2", "not UTF-8: byte 0xe9"),
        ("[" * 100_000, "line 1, column 2", "nested too deeply"),
        ('[{"p": ' + "9" * 5000 + "}]", "line 1, column 2", "digits"),
    ],
)
def test_a_file_that_is_not_json_is_refused_with_line_and_column(tmp_path, content, place, words):
    with pytest.raises(SourceError) as caught:
        rows_of(tmp_path, content.encode("utf-8", "surrogateescape"))
    assert f"rows.json, {place}: " in str(caught.value.value)
    assert words in str(caught.value.value)


@pytest.mark.parametrize("block", [1, 2, 3, 7])
def test_blocks_may_end_anywhere(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_source, "BLOCK_BYTES", block)
    rows = [{"prompt": "ü" * 20, "n": 1234567, "x": [True, None, -1.5e-3]}, 12, {"prompt": "b"}]
    assert [row.value for row in rows_of(tmp_path, json.dumps(rows, ensure_ascii=False, indent=1))] == [
        rows[0],
        None,
        rows[2],
    ]


@pytest.mark.parametrize("block", [2, 1000])
def test_the_place_of_a_fault_is_right_behind_many_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(json_source, "BLOCK_BYTES", block)
    content = "[\n" + "".join(f'{{"p": "{n}"}},\n' for n in range(40)) + '  {"p" 1}\n]'
    with pytest.raises(SourceError, match="line 42, column 8"):
        rows_of(tmp_path, content)


def test_a_value_beyond_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_source, "MAX_VALUE_CHARS", 100)
    monkeypatch.setattr(json_source, "BLOCK_BYTES", 64)
    assert len(rows_of(tmp_path, json.dumps([{"p": "x" * 40}] * 50))) == 50
    with pytest.raises(SourceError, match="a value of more than"):
        rows_of(tmp_path, json.dumps([{"p": "x" * 4000}]))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(rows=st.lists(JSON_VALUES, max_size=5), indent=st.sampled_from([None, 0, 3]), cut=st.integers(1, 8))
def test_what_was_written_reads_back_and_a_cut_is_refused(tmp_path_factory, rows, indent, cut):
    folder = tmp_path_factory.mktemp("json")
    text = json.dumps(rows, indent=indent, ensure_ascii=False)
    found = rows_of(folder, text.encode("utf-8", "surrogatepass"))
    assert [row.value for row in found] == [value if isinstance(value, dict) else None for value in rows]
    with pytest.raises(SourceError):
        rows_of(folder, text[: -min(cut, len(text) - 1)])
