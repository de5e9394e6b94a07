"""The same rows in every format and packing are the same rows; any bytes are rows or a SourceError."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict, disable_progress_bars
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill import plugins
from draftmill.errors import SourceError
from draftmill.prompts.files import find_files
from draftmill.prompts.opening import head
from draftmill.recipe import Prompts

Rows = list[dict[str, str]]


def read_all(path: Path) -> list[object]:
    """What a run would read of a file or folder, each plugin told by the content."""
    values: list[object] = []
    for file in find_files(Prompts(path=str(path))):
        known = [file.format] if file.format else plugins.names("sources")
        beginning = head(file.path)
        (plugin,) = (p for name in known if (p := plugins.load("sources", str(name))).sniff(file.path, beginning))
        values += [row.value for row in plugin.read(file.path, columns=frozenset({"id", "prompt"}))]
    return values


def json_lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def in_halves(pack: Callable[[bytes], bytes]) -> Callable[[Rows], bytes]:
    def packed(rows: Rows) -> bytes:
        content = json_lines(rows)
        middle = len(content) // 2
        return pack(content[:middle]) + pack(content[middle:])

    return packed


def table(rows: Rows) -> bytes:
    sink = io.StringIO()
    csv.writer(sink).writerows([("id", "prompt"), *((row["id"], row["prompt"]) for row in rows)])
    return sink.getvalue().encode()


def parquet(rows: Rows) -> bytes:
    sink = io.BytesIO()
    pd.DataFrame(rows).to_parquet(sink, row_group_size=2, index=False)
    return sink.getvalue()


FORMATS: dict[str, Callable[[Rows], bytes]] = {
    "lines": json_lines,
    "lines in UTF-16": lambda rows: json_lines(rows).decode().encode("utf-16"),
    "array": lambda rows: json.dumps(rows).encode(),
    "pretty array": lambda rows: json.dumps(rows, indent=2, ensure_ascii=False).encode(),
    "array in gzip": lambda rows: gzip.compress(json.dumps(rows).encode()),
    "object around": lambda rows: json.dumps({"data": rows}).encode(),
    "values of jq": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows).encode(),
    "table": table,
    "table in UTF-16 and zstd": lambda rows: pa.compress(table(rows).decode().encode("utf-16"), "zstd", asbytes=True),
    "parquet": parquet,
    "gzip": in_halves(gzip.compress),
    "zstd": in_halves(lambda content: pa.compress(content, "zstd", asbytes=True)),
    "bzip2": in_halves(bz2.compress),
    "xz": in_halves(lzma.compress),
}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ROWS = st.lists(st.fixed_dictionaries({"id": TEXTS, "prompt": TEXTS}), min_size=1, max_size=5)


@pytest.mark.parametrize("name", FORMATS)
@given(rows=ROWS)
@settings(max_examples=25)
def test_every_format_gives_the_same_rows(tmp_path_factory, name, rows):
    # Without an ending, so that the content decides; a table of one record may look like prose.
    file = tmp_path_factory.mktemp("rows") / ("rows.csv" if "table" in name else "rows")
    file.write_bytes(FORMATS[name](rows))
    assert read_all(file) == rows


@given(rows=ROWS)
@settings(max_examples=10)
def test_a_saved_dataset_gives_the_same_rows(tmp_path_factory, rows):
    disable_progress_bars()
    folder = tmp_path_factory.mktemp("saved")
    train = Dataset.from_list(rows)
    DatasetDict(train=train, test=Dataset.from_list([{"id": "held", "prompt": "out"}])).save_to_disk(
        str(folder), num_shards={"train": min(3, len(rows)), "test": 1}
    )
    assert read_all(folder) == rows


@pytest.mark.parametrize("name", plugins.names("sources"))
@given(content=st.binary(max_size=80) | st.text('{}[]",:;\n prompt\t1\\u0\ufeff', max_size=60).map(str.encode))
def test_any_bytes_are_rows_or_a_source_error(tmp_path_factory, name, content):
    file = tmp_path_factory.mktemp("bytes") / "rows"
    for packed in (content, gzip.compress(content), content.decode("utf-8", "replace").encode("utf-16")):
        file.write_bytes(packed)
        try:
            rows = list(plugins.load("sources", name).read(str(file)))
        except SourceError:
            continue
        assert all((row.value is None) != (row.fault is None) for row in rows)


def test_memory_is_bounded_by_a_row_not_by_the_file(tmp_path):
    rows = [{"prompt": f"{n} " + "x" * 20_000} for n in range(1500)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "rows.jsonl").write_bytes(json_lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=100)
    with (tmp_path / "rows.csv").open("w") as sink:
        csv.writer(sink).writerows([["prompt"], *([row["prompt"]] for row in rows)])
    del rows
    for ending in ("json", "jsonl", "csv", "parquet"):
        tracemalloc.start()
        try:
            plugin = plugins.load("sources", {"json": "json", "jsonl": "jsonl"}.get(ending, ending))
            assert sum(1 for _ in plugin.read(str(tmp_path / f"rows.{ending}"))) == 1500
            assert tracemalloc.get_traced_memory()[1] < 12 * 2**20
        finally:
            tracemalloc.stop()
