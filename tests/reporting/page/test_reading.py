"""Ids out of the objects: the rows wanted and no others, and every generated id counted once."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmill.exporting.counts import IdCounts
from draftmill.reporting.page.reading import coverage, read_rows
from tests.reporting.report_dataset import Made, sealed

IDS = st.lists(st.integers(0, 300), min_size=1, max_size=12)


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=8))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_generated_ids_and_no_others(tmp_path_factory, rows: list[tuple[list[int], list[int]]]) -> None:
    folder: Path = tmp_path_factory.mktemp("dataset")
    made = [Made(str(number), prompt, output) for number, (prompt, output) in enumerate(rows)]
    storage, manifest = sealed(folder, made, shard_rows=3)
    wanted = {(row["row_key"], 0) for row in (each.columns(0) for each in made[::2])}
    counts = IdCounts()
    found = read_rows(storage, manifest.shards, wanted, counts=counts)
    assert set(found) == wanted
    assert {tuple(row.ids_T.tolist()) for row in found.values()} == {(*prompt, *output) for prompt, output in rows[::2]}
    generated = [token_id for _, output in rows for token_id in output]
    table = counts.to_table()
    assert dict(zip(table["token_id"].to_pylist(), table["count"].to_pylist(), strict=True)) == {
        token_id: generated.count(token_id) for token_id in generated
    }
    told = coverage(counts)
    assert (told.supervised, told.distinct) == (len(generated), len(set(generated)))
