"""Which plugin takes a file: content decides, and never two of them."""

from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill import plugins
from draftmill.prompts.opening import HEAD_BYTES

MESSAGES = {"messages": [{"role": "user", "content": "x" * 100}]}
LONG = {"messages": [{"role": "user", "content": "x" * 2 * HEAD_BYTES}]}


def takers(path: str, content: bytes) -> list[str]:
    return [n for n in plugins.names("sources") if plugins.load("sources", n).sniff(path, content[:HEAD_BYTES])]


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def pretty(value: object, indent: int = 2) -> bytes:
    return json.dumps(value, indent=indent).encode()


CASES: list[tuple[str, bytes, str | None]] = [
    # JSON lines under any name.
    ("a.jsonl", lines(MESSAGES), "jsonl"),
    ("a.json", lines(MESSAGES), "jsonl"),
    ("a.json", lines(MESSAGES, MESSAGES), "jsonl"),
    ("a", lines(MESSAGES), "jsonl"),
    ("a.txt", codecs.BOM_UTF8 + b"\r\n " + lines(MESSAGES), "jsonl"),
    ("a.csv", lines(MESSAGES), "jsonl"),
    ("a.parquet", lines(MESSAGES), "jsonl"),
    ("a.json", lines(LONG, LONG), "jsonl"),
    ("a.json", b'{"prompt": "torn\n' + lines(MESSAGES), "jsonl"),
    ("a.json", b'{"prompt": "bad" 1}\n{"prompt": "bad", 2}\n', "jsonl"),
    ("a.jsonl", b'{"prompt": "torn', "jsonl"),
    ("a.jsonl", b"[1, 2]\n" + lines(MESSAGES), "jsonl"),
    ("a.jsonl", b"what is this\n", "jsonl"),
    ("a.JSONL.gz", b"\x00", "jsonl"),
    ("a.jsonl", b"\xff\xff\xff\xff", "huggingface"),
    ("a.csv", b"\xff\xff\xff\xff\n", "huggingface"),
    ("a.csv", b"PAR1\n", "parquet"),
    ("a.jsonl", b"ARROW1", "huggingface"),
    # Nothing in it: the name.
    ("a.jsonl", b"", "jsonl"),
    ("part-0.json", b" \n", "jsonl"),
    ("a.ndjson.zst", b"", "jsonl"),
    ("a.csv", b"", "csv"),
    ("a.txt", b"", None),
    # One JSON value.
    ("a.json", lines([MESSAGES]), "json"),
    ("a.jsonl", pretty([MESSAGES]), "json"),
    ("a.jsonl", lines([MESSAGES, MESSAGES]), "json"),
    ("a.json", b"[\n" + b",\n".join([lines(MESSAGES)] * 3) + b"]", "json"),
    ("a", codecs.BOM_UTF8 + pretty(MESSAGES), "json"),
    ("a.json", pretty(MESSAGES) + b"\n" + pretty(MESSAGES), "json"),
    ("a.json", b'{"prompt": "a"}{"prompt": "b"}', "json"),
    ("a.json", lines({"version": 1, "data": [{"prompt": "p"}]}), "json"),
    ("a.json", lines({"data": [{"prompt": "p" * 100}] * HEAD_BYTES}), "json"),
    ("a.json", pretty({"data": [{"prompt": "p" * 100}] * HEAD_BYTES}), "json"),
    ("a.json", pretty({"data": [{"prompt": "p" * 100}] * HEAD_BYTES}, 0), "json"),
    # Tables.
    ("a.csv", b"id,prompt\n1,a\n", "csv"),
    ("a.tsv.gz", b"anything\n", "csv"),
    ("a.txt", b"id;prompt\n1;a\n", "csv"),
    ("a.jsonl", b"id\tprompt\n1\ta\n", "csv"),
    ("a", codecs.BOM_UTF8 + b'id,prompt\r\n1,"a\r\nb"\r\n', "csv"),
    # Others.
    ("a.json", b"PAR1\x15\x04", "parquet"),
    ("a.jsonl", b"\xff\xff\xff\xff\x10\x01\x00\x00", "huggingface"),
    ("a", b"ARROW1\x00\x00", "huggingface"),
    ("notes.txt", b"just some words\n", None),
    ("README.md", b"# Prompts\n\nEach row has a prompt, a text and tools.\n", None),
    ("notes.txt", b"a prompt, text\nand more words\n", None),
    ("a.json", b"words", None),
    ("a.json", b"PK\x03\x04\x00", None),
    (".crc", b"crc\x00", None),
]


@pytest.mark.parametrize(("path", "content", "taker"), CASES)
def test_who_takes_it(path, content, taker):
    assert takers(path, content) == ([] if taker is None else [taker])


@given(
    path=st.sampled_from(["a.json", "a.jsonl", "a.csv", "a.parquet", "a.arrow", "a", "a.txt"]),
    content=st.binary(max_size=60) | st.text('{}[]",:;\n prompt\t1\ufeff', max_size=60).map(str.encode),
)
def test_never_two_take_one(path, content):
    assert len(takers(path, content)) <= 1
