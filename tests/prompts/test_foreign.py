"""Files that hold no prompts are refused by what they are; prompts never are."""

from __future__ import annotations

import io
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import pytest

from draftmill.errors import SourceError
from draftmill.prompts.foreign import refuse_kind
from draftmill.prompts.load import load_prompts
from draftmill.prompts.opening import head
from draftmill.recipe import Prompts


def zipped(*names: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return sink.getvalue()


def tarred() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("prompts.jsonl"))
    return sink.getvalue()


def database(tmp_path: Path) -> bytes:
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute("create table prompts (prompt)")
    connection.close()
    return (tmp_path / "db").read_bytes()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zipped("prompts.jsonl"), "a zip archive"),
        (zipped(), "an empty zip archive"),
        (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Office file"),
        (tarred(), "a tar archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old Office file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\xef\xbb\xbf\r\n <HTML>", "a web page"),
        (b"<?xml version='1.0'?>", "XML"),
        (b"<Error><Code>AccessDenied", "XML"),
        (b"ORC\x11", "an ORC file"),
    ],
)
def test_it_is_named_and_what_to_do_is_said(tmp_path, content, words):
    file = tmp_path / "prompts.jsonl.bin"
    file.write_bytes(content)
    with pytest.raises(SourceError, match=words) as caught:
        load_prompts(Prompts(path=str(file)))
    assert str(file) in str(caught.value.value)


def test_a_real_database(tmp_path):
    (tmp_path / "p.sqlite").write_bytes(database(tmp_path))
    with pytest.raises(SourceError, match="an SQLite database"):
        refuse_kind("p.sqlite", head(str(tmp_path / "p.sqlite")))


BEGINNINGS = [b"", b"{}", b"[", b"PAR1", b"\xff\xff\xff\xff", b"id,prompt\n"]
HEADERS = [b"PK,prompt\n", b"ORCID,prompt\n", b"PARENT,prompt\n"]


@pytest.mark.parametrize("content", [*BEGINNINGS, *HEADERS])
def test_what_may_be_prompts_is_not_refused(content):
    refuse_kind("a", content)
