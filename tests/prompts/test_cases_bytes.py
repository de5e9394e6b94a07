"""Files whose bytes are the trouble: marks, separators, half lines, packed, cut, empty, misnamed."""

from __future__ import annotations

import gzip
import json
import unicodedata

import pytest

from draftmill.errors import SourceError
from draftmill.records import Reason
from tests.prompts.made import (
    QWEN25,
    chat,
    conversations,
    holds,
    ids,
    jsonl,
    last_texts,
    load,
    raw,
    refused,
    render,
    user,
)


def test_a_byte_order_mark_and_windows_line_ends(tmp_path):
    rows = [chat(user("Grüße?")), chat(user("zwei")), chat(user("keeps its own end\r\n")), chat(user("vier"))]
    data = "\ufeff" + "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n"
    loaded = load(raw(tmp_path / "from_windows.jsonl", data.encode()))
    assert last_texts(loaded) == ["Grüße?", "zwei", "keeps its own end\r\n", "vier"]
    assert loaded.rejected.num_rows == 0


def test_separators_that_are_no_line_ends(tmp_path):
    texts = ["a\u2028b", "c\u2029d", "e\u0085f", "g\u000bh\fi\u001cj", "k\u200bl\ufeffm\u00adn"]
    assert len("\n".join(texts).splitlines()) > len(texts)
    loaded = load(jsonl(tmp_path / "separators.jsonl", *(chat(user(text)) for text in texts)))
    assert last_texts(loaded) == texts


def test_every_legal_character_arrives_as_it_was_typed(tmp_path):
    composed, decomposed = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
    texts = [
        "\U0001f469\u200d\U0001f52c and \U0001f1e6\U0001f1f9",
        "\u0645\u0631\u062d\u0628\u0627 \u202eabc\u202c",
        "cut\x00here?",
        composed,
        decomposed,
        "  both ends  ",
        "tab\tand\n\n\nlines\n",
        "\U0001d518 \U00012000 \U0010ffff",
        "Z\u0338\u0327a\u0337l",
        "\ufdfa" * 20,
    ]
    loaded = load(jsonl(tmp_path / "torture.jsonl", *({"id": n, "prompt": text} for n, text in enumerate(texts))))
    assert last_texts(loaded) == texts
    rendered = render(loaded, tmp_path, QWEN25)
    found = ids(rendered)
    assert len(found) == len(texts)
    # Whether two spellings of a letter are one prompt is the tokenizer's to say, by ids.
    assert found["3"] != found["4"]
    assert len({str(found[str(n)]) for n in range(len(texts))}) == len(texts)


def test_blank_lines_are_no_rows_and_half_lines_have_their_number(tmp_path):
    good = json.dumps(chat(user("whole")))
    data = f"\n{good}\n\n   \n{good}\n\t\n{good}\n{good[:25]}\n{good}\n{good[:40]}"
    loaded = load(raw(tmp_path / "torn.jsonl", data.encode()))
    holds(loaded, good=[2, 5, 7, 9], bad={8: "not JSON", 10: "not JSON"})
    torn = {row["line"]: row["detail"] for row in loaded.rejected.to_pylist()}
    assert "half written?" in torn[10]
    assert "half written?" not in torn[8]


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_an_error_that_names_it(tmp_path, data):
    path = raw(tmp_path / "nightly.jsonl", data)
    with pytest.raises(SourceError, match=r"nightly\.jsonl: 1 files, 0 rows") as caught:
        load(path)
    assert "nothing was changed" in caught.value.what


def test_a_comma_too_many_is_a_file_that_is_no_json(tmp_path):
    path = raw(tmp_path / "list.json", b'[\n {"prompt": "a"},\n {"prompt": "b"},\n {"prompt": "c"},\n]\n')
    with pytest.raises(SourceError, match=r"list\.json, line 5, column 1"):
        load(path)


def test_json_lines_under_the_name_of_json(tmp_path):
    path = jsonl(tmp_path / "rows.json", *({"prompt": f"line {n}"} for n in range(5)))
    assert last_texts(load(path)) == [f"line {n}" for n in range(5)]


def packed(first: int, last: int) -> bytes:
    return gzip.compress("".join(json.dumps({"prompt": f"packed {n}"}) + "\n" for n in range(first, last)).encode())


def test_every_member_of_a_gzip_file_is_read(tmp_path):
    path = raw(tmp_path / "glued.jsonl.gz", packed(0, 5) + packed(5, 10))
    assert last_texts(load(path)) == [f"packed {n}" for n in range(10)]


def test_packed_is_told_by_the_first_bytes(tmp_path):
    assert len(last_texts(load(raw(tmp_path / "browser.jsonl", packed(0, 4))))) == 4


def test_a_file_that_is_cut_is_refused_whole(tmp_path):
    data = gzip.compress(b"".join(json.dumps({"prompt": f"{n * 7919}"}).encode() + b"\n" for n in range(400)))
    cut = data[: len(data) * 2 // 3]
    path = raw(tmp_path / "partial.jsonl.gz", cut)
    with pytest.raises(SourceError, match=rf"partial\.jsonl\.gz, read up to byte {len(cut)}"):
        load(path)


def test_a_spark_folder(tmp_path):
    folder = tmp_path / "out"
    for n in (2, 0, 1):
        raw(folder / f"part-0000{n}-x.c000.json.gz", packed(n * 4, n * 4 + 4))
    for name in ("_SUCCESS", "._SUCCESS.crc", ".part-00000-x.c000.json.gz.crc", "._part-00000-x.c000.json.gz"):
        raw(folder / name, b"\0\5\26\7")
    raw(folder / "part-00003-x.c000.json", b"")
    raw(folder / "_temporary" / "0" / "part-00009-x.c000.json", b'{"prompt": "not committed"}\n')
    raw(folder / "notes.txt", b"made by hand")
    loaded = load(str(folder))
    assert last_texts(loaded) == [f"packed {n}" for n in range(12)]
    assert [file.path.rsplit("/", 1)[-1] for file in loaded.files if file.format is None] == ["notes.txt"]


def test_a_table_from_a_spreadsheet(tmp_path):
    cells = [
        (1, '"some, commas"'),
        (2, '"two\nlines"'),
        (3, '"he said ""no"""'),
        (4, ""),
        (5, "NA"),
        (6, "None"),
        ("007", "00123"),
        (8, "2024-01-01"),
        (9, '"  kept  "'),
        (10, "\u00fcnd \U0001f600"),
    ]
    text = "\ufeffid,prompt,note\r\n" + "".join(f"{name},{cell},x\r\n" for name, cell in cells)
    loaded = load(raw(tmp_path / "sheet.csv", text.encode()))
    assert last_texts(loaded) == [
        "some, commas",
        "two\nlines",
        'he said "no"',
        "NA",
        "None",
        "00123",
        "2024-01-01",
        "  kept  ",
        "\u00fcnd \U0001f600",
    ]
    assert loaded.table["prompt_id"].to_pylist() == ["1", "2", "3", "5", "6", "007", "8", "9", "10"]
    assert [(row["prompt_id"], row["detail"]) for row in loaded.rejected.to_pylist()] == [
        ("4", "prompt is empty (null)")
    ]


def test_long_prompts_are_measured_in_tokens_and_never_cut(tmp_path):
    long = "many words " * 9091
    path = jsonl(tmp_path / "long.jsonl", chat(user(long[:100_000])), chat(user("short")), chat(user(long[:80_000])))
    loaded = load(path)
    assert [len(text) for text in last_texts(loaded)] == [100_000, 5, 80_000]
    small = refused(render(loaded, tmp_path, QWEN25, context=8192))
    assert small.keys() == {1, 3}
    assert all(words.startswith(Reason.PROMPT_TOO_LONG) for words in small.values())
    large = render(loaded, tmp_path, QWEN25, context=131_072)
    assert (large.rejected, large.rows.num_rows) == ([], 3)
    assert [messages[0]["content"] for messages in conversations(loaded)][1] == "short"
