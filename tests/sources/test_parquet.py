"""Parquet as pandas, Spark and `datasets` write it: nulls that Arrow filled in, odd columns, damage."""

from __future__ import annotations

import datetime as dt
import gzip
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import SourceError
from draftmill.prompts.source_row import SourceRow
from draftmill.sources import _columnar, parquet


def rows_of(tmp_path: Path, table: pa.Table, columns: frozenset[str] | None = None) -> list[SourceRow]:
    file = tmp_path / "rows.parquet"
    pq.write_table(table, file)
    return list(parquet.read(str(file), columns=columns))


def test_keys_that_arrow_filled_with_null_are_gone(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": "q"}], "n": None},
        {"messages": [{"role": "user", "content": "q", "name": "N", "calls": [{"function": {"a": 1}}]}], "n": {"x": 1}},
        {"messages": [{"role": "user", "calls": [{"function": {"b": None}}]}, None], "n": {"x": None}},
        {"messages": None},
        {"messages": []},
    ]
    found = [row.value for row in rows_of(tmp_path, pa.Table.from_pylist(rows))]
    # `b` is null in every row, so Arrow has no place where it was; a null in a list is a place, and stays.
    assert found == [
        {"messages": [{"role": "user", "content": "q"}], "n": None},
        rows[1],
        {"messages": [{"role": "user", "calls": [{"function": {}}]}, None], "n": {}},
        {"messages": None, "n": None},
        {"messages": [], "n": None},
    ]


def test_rows_are_numbered_over_batches_and_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(_columnar, "BATCH_ROWS", 3)
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"prompt": [str(n) for n in range(1, 20)]}), file, row_group_size=7)
    assert [(row.line, row.value) for row in parquet.read(str(file))] == [(n, {"prompt": str(n)}) for n in range(1, 20)]


def test_json_text_and_texts_like_dates_stay_text(tmp_path):
    frame = pd.DataFrame({"messages": ['[{"role": "user"}]', None], "prompt": ["2024-01-01", "007"]})
    frame.to_parquet(tmp_path / "rows.parquet")
    found = [row.value for row in parquet.read(str(tmp_path / "rows.parquet"))]
    assert found == [{"messages": '[{"role": "user"}]', "prompt": "2024-01-01"}, {"messages": None, "prompt": "007"}]


ODD: dict[str, tuple[pa.Array, Any]] = {
    "nanoseconds": (pa.array([2**63 - 2], pa.timestamp("ns")), "2262-04-11T23:47:16.854775806"),
    "beyond python's years": (
        pa.array([253402300800000000], pa.timestamp("us")),
        "10000-01-01 00:00:00.000000",
    ),
    "zone": (pa.array([0], pa.timestamp("s", "Europe/Vienna")), "1970-01-01T01:00:00+01:00"),
    "date": (pa.array([dt.date(2024, 1, 1)]), "2024-01-01"),
    "decimal": (pa.array([Decimal("1.50")]), "1.50"),
    "text as bytes": (pa.array([b"prompt"]), "prompt"),
    "bytes": (pa.array([b"\xff\x00"]), {"bytes": "ff00"}),
    "map": (pa.array([[("k", "v"), ("n", None)]], pa.map_(pa.string(), pa.string())), {"k": "v"}),
    "category": (pa.array(["x"]).dictionary_encode(), "x"),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
    "uuid": (pa.array([uuid.UUID(int=1).bytes], pa.uuid()), str(uuid.UUID(int=1))),
    "nothing": (pa.nulls(1), None),
    "large": (pa.array([["a"]], pa.large_list(pa.large_string())), ["a"]),
    "tensor": (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2))), [0.0, 0.0]),
}


@pytest.mark.parametrize("name", ODD)
def test_values_of_any_type_are_such_as_json_holds(tmp_path, name):
    array, expected = ODD[name]
    (row,) = rows_of(tmp_path, pa.table({"prompt": ["p"], "odd": array}))
    assert row == SourceRow(1, {"prompt": "p", "odd": expected}, None)


def test_columns_that_do_not_matter_are_named_but_not_read(tmp_path):
    table = pa.table({"prompt": ["p"], "prompt.x": ["x"], **{name: array for name, (array, _) in ODD.items()}})
    (row,) = rows_of(tmp_path, table, frozenset({"prompt", "messages"}))
    assert row.value == {"prompt": "p", "prompt.x": None, **dict.fromkeys(ODD)}
    (row,) = rows_of(tmp_path, table, frozenset({"messages"}))
    assert row.value == dict.fromkeys(table.column_names)


def test_a_value_that_cannot_be_read_is_a_fault_of_its_row():
    offsets = pa.py_buffer(np.array([0, 1, 2], "int32").tobytes())
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xffa")])
    bad, good = _columnar.rows(pa.record_batch({"prompt": broken}), ["prompt"], first=5)
    assert bad.line == 5
    assert (bad.fault or "").startswith("prompt: not readable: 'utf-8' codec")
    assert good == SourceRow(6, {"prompt": "a"}, None)


def test_damage_is_refused_with_the_file(tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"prompt": ["p" * 100, "q"]}), file, compression="none")
    whole = file.read_bytes()
    for content in (whole[:-1], whole[: len(whole) // 2], gzip.compress(whole), b"", b"PAR1"):
        file.write_bytes(content)
        with pytest.raises(SourceError, match=r"a Parquet file that cannot be read[\s\S]*rows\.parquet, at row 1"):
            list(parquet.read(str(file)))


@given(content=st.binary(max_size=40), place=st.integers(0, 400))
def test_any_damage_gives_rows_or_a_source_error(tmp_path_factory, content, place):
    file = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    pq.write_table(pa.table({"prompt": ["p" * 100, "q"]}), file)
    whole = file.read_bytes()
    file.write_bytes(whole[:place] + content + whole[place + len(content) :])
    try:
        list(parquet.read(str(file)))
    except SourceError:
        return
