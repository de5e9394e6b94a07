"""Every plugin on every shelf keeps its door's promise; a new file is found by itself. Engines: test_engines.py."""

from __future__ import annotations

import inspect
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftmill import plugins
from draftmill.errors import RecipeError, SourceError

ROWS = pa.table({"prompt": ["a", "b"], "n": ["1", "2"]})


def columnar(name: str) -> bytes:
    sink = io.BytesIO()
    if name == "parquet":
        pq.write_table(ROWS, sink)
    else:
        with pa.ipc.new_stream(sink, ROWS.schema) as writer:
            writer.write_table(ROWS)
    return sink.getvalue()


SOURCES = {
    "csv": b"prompt,n\na,1\nb,2\n",
    "huggingface": columnar("huggingface"),
    "json": b'[{"prompt": "a", "n": "1"}, {"prompt": "b", "n": "2"}]',
    "jsonl": b'{"prompt": "a", "n": "1"}\n{"prompt": "b", "n": "2"}\n',
    "parquet": columnar("parquet"),
}
"""Two rows in each format, under no name that would help. A new format adds its own."""


def shelf(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", plugins.names(name))


@shelf("sources")
def test_a_source_sniffs_and_reads(name: str, tmp_path: Path) -> None:
    plugin = plugins.load("sources", name)
    assert plugin.sniff("notes.txt", b"just some words\n") is False
    assert all(suffix.startswith(".") for suffix in plugin.SUFFIXES)
    assert not getattr(plugin, "BINARY", False) or not plugin.sniff(f"a{plugin.SUFFIXES[0]}", b"")
    with pytest.raises(SourceError, match=r"missing\.file"):
        list(plugin.read(str(tmp_path / "missing.file"), columns=frozenset({"prompt"})))


@shelf("sources")
def test_a_source_takes_its_own_and_lets_go_of_what_is_not_read_to_the_end(name: str, tmp_path: Path) -> None:
    content = SOURCES[name]
    assert [n for n in plugins.names("sources") if plugins.load("sources", n).sniff("file", content)] == [name]
    (tmp_path / "file").write_bytes(content)
    rows = plugins.load("sources", name).read(str(tmp_path / "file"), columns=frozenset({"prompt"}))
    first = next(rows)
    assert first.value["prompt"] == "a"
    assert list(first.value) == ["prompt", "n"]
    rows.close()  # an open file would be a ResourceWarning, and so an error


@shelf("structures")
def test_a_structure_derives_from_a_probe(name: str) -> None:
    plugin = plugins.load("structures", name)
    assert isinstance(plugin.ORDER, int)
    assert next(iter(inspect.signature(plugin.derive).parameters)) == "probe"


@pytest.mark.parametrize("name", ["engines", "sources", "structures"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(RecipeError) as raised:
        plugins.load(name, "nonesuch")
    assert all(known in raised.value.expected for known in plugins.names(name))
