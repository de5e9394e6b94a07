"""Tables as people export them: each test makes one kind of file and says what must come of it."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import SourceError
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import csv as csv_source


def rows_of(tmp_path: Path, content: str | bytes) -> list[SourceRow]:
    file = tmp_path / "rows.csv"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(csv_source.read(str(file)))


def prompts(rows: list[SourceRow]) -> list[object]:
    return [row.value and row.value["prompt"] for row in rows]


def test_words_and_numbers_stay_text_as_typed(tmp_path):
    words = [
        "NA",
        "None",
        "null",
        "NaN",
        "00123",
        "2024-01-01",
        "1e5",
        "true",
        "  spaced  ",
        "ünï 😀",
        "=1",
        "a\u2028b",
    ]
    assert prompts(rows_of(tmp_path, "id,prompt\n" + "".join(f"{n},{word}\n" for n, word in enumerate(words)))) == words


def test_bom_crlf_and_what_stands_in_quotes(tmp_path):
    content = '\ufeffid,prompt,note\r\n1,"plain, with comma",a\r\n2,"two\r\nlines",b\r\n3,"she said ""hi""",\r\n'
    rows = rows_of(tmp_path, content)
    assert rows == [
        SourceRow(2, {"id": "1", "prompt": "plain, with comma", "note": "a"}, None),
        SourceRow(3, {"id": "2", "prompt": "two\r\nlines", "note": "b"}, None),
        SourceRow(5, {"id": "3", "prompt": 'she said "hi"', "note": None}, None),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_delimiters_and_line_ends(tmp_path, sign, end):
    lines = [sign.join(record) for record in (["id", "prompt"], ["1", "a"], ["2", "b"])]
    assert prompts(rows_of(tmp_path, end.join(lines))) == ["a", "b"]


def test_the_header_not_the_text_tells_the_delimiter(tmp_path):
    assert prompts(rows_of(tmp_path, "id;prompt;a, b, c\n1;x, y;z\n")) == ["x, y"]
    assert prompts(rows_of(tmp_path, "prompt\na, b; c\td\n")) == [None]
    assert prompts(rows_of(tmp_path, 'prompt\n"a, b; c\td"\n')) == ["a, b; c\td"]


def test_excels_own_first_line_names_the_delimiter(tmp_path):
    (row,) = rows_of(tmp_path, "sep=;\r\nprompt;a,b\r\nx;y\r\n")
    assert row == SourceRow(3, {"prompt": "x", "a,b": "y"}, None)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_excels_encodings(tmp_path, encoding):
    assert prompts(rows_of(tmp_path, "id\tprompt\r\n1\tünï 😀\r\n".encode(encoding))) == ["ünï 😀"]


def test_another_encoding_is_refused_with_line_and_byte(tmp_path):
    content = b"id,prompt\n" + b"1,plain\n" * 3000 + b"2,caf\xe9\n"
    with pytest.raises(SourceError, match=r"rows\.csv, line 3002: not UTF-8: byte 0xe9") as caught:
        rows_of(tmp_path, content)
    assert "UTF-8" in caught.value.remedy


def test_ragged_records_are_faults_of_their_line(tmp_path):
    rows = rows_of(tmp_path, 'id,prompt\n1\n2,"a\nb"\n3,c,d\n\n4,e\n')
    assert [(row.line, row.fault) for row in rows] == [
        (2, "1 fields, expected 2 as in the header"),
        (3, None),
        (5, "3 fields, expected 2 as in the header"),
        (7, None),
    ]


def test_a_quote_in_a_wrong_place_is_a_fault_of_its_line(tmp_path):
    bad, good = rows_of(tmp_path, 'id,prompt\n1,"he said "hi" there"\n2,ok\n')
    assert bad.line == 2
    assert "not a record" in (bad.fault or "")
    assert good.value == {"id": "2", "prompt": "ok"}


def test_a_torn_last_record_is_one_fault(tmp_path):
    good, torn = rows_of(tmp_path, 'id,prompt\n1,a\n2,"half wri')
    assert good.value
    assert (torn.line, torn.value) == (3, None)


def test_a_quote_that_is_never_closed_refuses_the_file(tmp_path):
    with pytest.raises(SourceError, match="lines 3 to 5"):
        rows_of(tmp_path, 'id,prompt\n1,a\n2,"b\n3,c\n4,d\n')


def test_headers(tmp_path):
    assert rows_of(tmp_path, "") == []
    assert rows_of(tmp_path, "id,prompt\n") == []
    assert prompts(rows_of(tmp_path, "id, prompt \n1,a\n")) == ["a"]
    assert prompts(rows_of(tmp_path, ",x,x,prompt\n1,2,3,a\n")) == ["a"]
    with pytest.raises(SourceError, match="two columns are called 'prompt'"):
        rows_of(tmp_path, "prompt,prompt\n1,a\n")


def test_fields_longer_than_the_csv_modules_limit(tmp_path):
    long = "x" * 200_000
    assert prompts(rows_of(tmp_path, f"prompt,n\n{long},1\n")) == [long]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    records=st.lists(st.tuples(TEXTS, TEXTS), max_size=6),
    dialect=st.sampled_from([csv.excel, csv.excel_tab, csv.unix_dialect]),
    bom=st.booleans(),
)
def test_what_pythons_writer_wrote_reads_back(tmp_path_factory, records, dialect, bom):
    sink = io.StringIO()
    writer = csv.writer(sink, dialect)
    writer.writerows([("id", "prompt"), *records])
    content = (codecs.BOM_UTF8 if bom else b"") + sink.getvalue().encode()
    rows = rows_of(tmp_path_factory.mktemp("csv"), content)
    assert [tuple(row.value.values()) for row in rows if row.value] == [(a or None, b or None) for a, b in records]


@given(content=st.binary(max_size=120) | st.text('"a,\n\r;', max_size=60).map(str.encode))
def test_any_bytes_are_rows_or_a_source_error(tmp_path_factory, content):
    try:
        rows = rows_of(tmp_path_factory.mktemp("csv"), content)
    except SourceError:
        return
    assert all((row.value is None) != (row.fault is None) for row in rows)
