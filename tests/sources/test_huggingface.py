"""Arrow files of `datasets`: streams and files, whole, cut and damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest
from datasets import Dataset, disable_progress_bars
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import SourceError
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import _columnar, huggingface

ROWS = [
    {"messages": [{"role": "user", "content": "a"}], "n": 1},
    {"messages": [{"role": "user", "content": "b", "name": "N"}], "n": 2},
]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The one Arrow file of a saved dataset."""
    disable_progress_bars()
    Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "ds"))
    (file,) = (tmp_path / "ds").glob("*.arrow")
    return file


def test_what_datasets_saved_is_read_without_the_nulls_it_filled_in(saved):
    assert list(huggingface.read(str(saved))) == [SourceRow(n, row, None) for n, row in enumerate(ROWS, start=1)]


def test_columns_that_do_not_matter_are_named_but_not_read(saved):
    first, _ = huggingface.read(str(saved), columns=frozenset({"n"}))
    assert first.value == {"messages": None, "n": 1}


def test_rows_are_numbered_over_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(_columnar, "BATCH_ROWS", 3)
    table = pa.table({"prompt": [str(n) for n in range(1, 20)]})
    with pa.OSFile(str(tmp_path / "rows"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    found = [(row.line, row.value) for row in huggingface.read(str(tmp_path / "rows"))]
    assert found == [(n, {"prompt": str(n)}) for n in range(1, 20)]


def test_the_file_format_is_read_too(tmp_path):
    feather.write_feather(pa.table({"prompt": ["a", "b"]}), str(tmp_path / "rows.feather"), compression="zstd")
    assert [row.value for row in huggingface.read(str(tmp_path / "rows.feather"))] == [{"prompt": "a"}, {"prompt": "b"}]


def test_a_stream_that_was_never_closed_is_refused_also_between_two_batches(tmp_path):
    file, batch = tmp_path / "rows", pa.record_batch({"prompt": ["p" * 100]})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        sink.flush()
        one = file.stat().st_size
        writer.write_batch(batch)
    whole = file.read_bytes()
    for cut in (one, one + 10, len(whole) - 1, 4, 0):
        file.write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=r"an Arrow file that cannot be read[\s\S]*rows, it"):
            list(huggingface.read(str(file)))


@given(content=st.binary(max_size=40), place=st.integers(0, 700))
def test_any_damage_gives_rows_or_a_source_error(tmp_path_factory, content, place):
    file = tmp_path_factory.mktemp("arrow") / "rows"
    batch = pa.record_batch({"prompt": ["p" * 100, "q"], "n": [1, 2]})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    whole = file.read_bytes()
    file.write_bytes(whole[:place] + content + whole[place + len(content) :])
    try:
        list(huggingface.read(str(file)))
    except SourceError:
        return
