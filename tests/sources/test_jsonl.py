"""JSON lines as people really write them: each test makes one fault and says what must come of it."""

from __future__ import annotations

import codecs
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import SourceError
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import jsonl


def rows_of(tmp_path: Path, content: bytes) -> list[SourceRow]:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)
    return list(jsonl.read(str(file)))


def values(rows: list[SourceRow]) -> list[object]:
    return [row.value for row in rows]


def test_bom_and_crlf_are_not_data(tmp_path):
    rows = rows_of(tmp_path, codecs.BOM_UTF8 + b'{"prompt": "a\\r\\n"}\r\n{"prompt": "b"}\r\n')
    assert rows == [SourceRow(1, {"prompt": "a\r\n"}, None), SourceRow(2, {"prompt": "b"}, None)]


def test_files_glued_together_keep_no_bom(tmp_path):
    line = codecs.BOM_UTF8 + b'{"prompt": "a"}\n'
    assert values(rows_of(tmp_path, line + line)) == [{"prompt": "a"}] * 2


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_unicode_line_separators_stay_inside_strings(tmp_path, separator):
    rows = rows_of(tmp_path, f'{{"prompt": "a{separator}b"}}\n{{"prompt": "c"}}\n'.encode())
    assert values(rows) == [{"prompt": f"a{separator}b"}, {"prompt": "c"}]


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path):
    rows = rows_of(tmp_path, b'\n{"n": 1}\n\n   \n\t\r\n{"n": 2}')
    assert [(row.line, row.value) for row in rows] == [(2, {"n": 1}), (6, {"n": 2})]


def test_only_the_torn_last_line_is_called_half_written(tmp_path):
    middle, good, last = rows_of(tmp_path, b'{"messages": [{"role":\n{"n": 1}\n{"messages": [{"ro')
    assert middle.fault
    assert "half written?" not in middle.fault
    assert good.value == {"n": 1}
    assert last.line == 3
    assert last.fault
    assert last.fault.startswith("not JSON")
    assert "half written?" in last.fault


def test_a_bad_last_line_that_was_ended_is_not_half_written(tmp_path):
    (row,) = rows_of(tmp_path, b'{"a": }\n')
    assert row.fault
    assert "half written?" not in row.fault


def test_a_character_cut_in_two_at_the_end_is_half_written(tmp_path):
    (row,) = rows_of(tmp_path, '{"prompt": "ü'.encode()[:-1])
    assert row.fault
    assert "not UTF-8" in row.fault
    assert "half written?" in row.fault


def test_nan_and_infinity_in_other_columns_do_not_stop_a_line(tmp_path):
    (row,) = rows_of(tmp_path, b'{"prompt": "x", "score": NaN, "other": -Infinity}\n')
    assert row.value is not None
    assert row.value["prompt"] == "x"


def test_numbers_beyond_64_bits_and_text_that_looks_like_a_date_arrive_as_typed(tmp_path):
    (row,) = rows_of(tmp_path, b'{"id": 12345678901234567890123, "p": 1e400, "a": "2024-01-01", "b": "007"}\n')
    assert row.value == {"id": 12345678901234567890123, "p": float("inf"), "a": "2024-01-01", "b": "007"}


def test_a_line_that_is_not_utf8_is_one_fault_with_its_place(tmp_path):
    first, second = rows_of(tmp_path, b'{"prompt": "caf\xe9"}\n{"n": 1}\n')
    assert first == SourceRow(1, None, "not UTF-8: byte 0xe9 at 16 of the line")
    assert second.value == {"n": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[1, 2]\n", "a list, expected an object"),
        (b'"text"\n', "text, expected an object"),
        (b"NaN\n", "NaN, expected an object"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b'{"n": ' + b"9" * 5000 + b"}\n", "not readable"),
        (b"\0\0\0\0\n", "not JSON"),
    ],
)
def test_a_line_that_is_no_object_is_one_fault(tmp_path, content, words):
    row, after = rows_of(tmp_path, content + b'{"n": 1}\n')
    assert row.value is None
    assert words in (row.fault or "")
    assert after.value == {"n": 1}


def test_a_line_beyond_the_bound_is_refused_and_the_next_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 64)
    rows = rows_of(tmp_path, b'{"a": "' + b"x" * 500 + b'"}\n{"n": 1}\n')
    assert rows[0].value is None
    assert (rows[1].line, rows[1].value) == (2, {"n": 1})


def test_gzip_is_told_by_its_bytes_and_all_members_are_read(tmp_path):
    members = gzip.compress(b'{"n": 1}\n') + gzip.compress(b'{"n": 2}\n')
    assert values(rows_of(tmp_path, members)) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("keep", [0.3, 0.66, 0.95])
def test_a_cut_gzip_file_is_refused_with_file_and_byte(tmp_path, keep):
    whole = gzip.compress("".join(json.dumps({"prompt": f"p{n * 7919}"}) + "\n" for n in range(400)).encode())
    cut = whole[: int(len(whole) * keep)]
    with pytest.raises(SourceError, match=rf"ends early[\s\S]*rows\.jsonl, read up to byte {len(cut)}"):
        rows_of(tmp_path, cut)


def test_a_cut_in_the_second_member_is_refused_too(tmp_path):
    member = gzip.compress(b'{"n": 1}\n')
    with pytest.raises(SourceError, match="ends early"):
        rows_of(tmp_path, member + member[:-3])


def test_damaged_gzip_is_refused(tmp_path):
    whole = bytearray(gzip.compress(b'{"n": 1}\n' * 100))
    whole[-6] ^= 0xFF  # the checksum
    with pytest.raises(SourceError, match="is damaged"):
        rows_of(tmp_path, bytes(whole))


@pytest.mark.parametrize(
    ("path", "head", "is_ours"),
    [
        ("a.jsonl", b"", True),
        ("a.JSONL.gz", b"\x00", True),
        ("a.json", b'\xef\xbb\xbf\n {"a": 1}', True),
        ("part-0.json", b"", True),
        ("a.json", b"[1]", False),
        ("notes.txt", b"not data", False),
        ("a.parquet", b"PAR1", False),
        ("a.txt", b"", False),
    ],
)
def test_sniff(path, head, is_ours):
    assert jsonl.sniff(path, head) is is_ours


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
OBJECTS = st.dictionaries(st.text(max_size=4), SCALARS | st.lists(SCALARS, max_size=2), max_size=3)
BLANKS = st.lists(st.sampled_from([b"", b"  ", b"\t", b"\r"]), max_size=3)


@given(
    rows=st.lists(st.tuples(BLANKS, OBJECTS), max_size=4),
    bom=st.booleans(),
    end=st.sampled_from([b"\n", b"\r\n"]),
    ended=st.booleans(),
    packed=st.booleans(),
)
def test_what_was_written_reads_back_with_its_line_numbers(tmp_path_factory, rows, bom, end, ended, packed):
    lines: list[bytes] = []
    expected = []
    for blanks, value in rows:
        lines += [*blanks, json.dumps(value, ensure_ascii=False).encode()]
        expected.append((len(lines), value))
    content = (codecs.BOM_UTF8 if bom else b"") + end.join(lines) + (end if ended else b"")
    file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    file.write_bytes(gzip.compress(content) if packed else content)
    assert [(row.line, row.value) for row in jsonl.read(str(file))] == expected
