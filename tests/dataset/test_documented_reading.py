"""What README.md and docs/dataset.md say of reading a dataset, run as it stands there, where old shards still lie."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from draftmill.dataset.card import write_card
from draftmill.dataset.compact import compact
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import requests_table

ROOT = Path(__file__).parents[2]
IN_A_BUCKET = "s3://bucket/kimi-eagle3"

Rows = Callable[..., pa.Table]
KeyOf = Callable[[str], str]


def snippets(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8").split("## The card")[0]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def fill(storage: Storage, stored_rows: Rows, key_of: KeyOf) -> set[str]:
    """Three versions: of the rows of the first one is replaced, and the last is compacted. The keys that stand."""
    seal(storage, Change(good=[storage.put_table("shards", stored_rows({"key": "a"}, {"key": "old", "slot": "s"}))]))
    new = [storage.put_table("shards", stored_rows({"key": "new", "slot": "s"}))]
    seal(storage, Change(good=new, dropped=requests_table([(key_of("old"), 0)])))
    compact(storage)
    write_card(storage)
    assert len(storage.list("shards")) > 1
    return {key_of("a"), key_of("new")}


def keys(rows: Any) -> Sequence[str]:
    column = rows["row_key"]
    return list(column.to_pylist() if isinstance(column, pa.ChunkedArray) else column)


@pytest.mark.parametrize("page", ["README.md", "docs/dataset.md"])
def test_a_folder(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_rows: Rows, key_of: KeyOf) -> None:
    stand = fill(open_storage(str(tmp_path / "demo-dataset")), stored_rows, key_of)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    names: dict[str, Any] = {}
    ran = 0
    for snippet in snippets(page):
        if IN_A_BUCKET in snippet or ("import duckdb" in snippet and importlib.util.find_spec("duckdb") is None):
            continue
        exec(snippet, names)
        assert sorted(keys(names["rows"])) == sorted(stand)
        ran += 1
    assert ran


def test_a_bucket(bucket: str, stored_rows: Rows, key_of: KeyOf) -> None:
    stand = fill(open_storage(f"{bucket}/nights/one"), stored_rows, key_of)
    (snippet,) = (snippet for snippet in snippets("docs/dataset.md") if IN_A_BUCKET in snippet)
    names: dict[str, Any] = {}
    exec(snippet.replace(IN_A_BUCKET, f"{bucket}/nights/one"), names)
    assert sorted(keys(names["rows"])) == sorted(stand)


def test_nothing_documented_reads_a_whole_folder() -> None:
    pages = [ROOT / "README.md", ROOT / "infra" / "demo.sh", *(ROOT / "docs").glob("*.md")]
    readers = re.compile(r"/shards/?[\"']|shards/\*")
    assert [page.name for page in pages if readers.search(page.read_text(encoding="utf-8"))] == []
