"""What a manifest's rows are, as keys: enough to plan and to seal, without any ids.

Reads key columns of each shard and quarantine object, a few bytes a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.statistics import MEASURED
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.errors import DatasetError

STORED = pa.schema(
    [
        ("row_key", pa.string()),
        ("prompt_key", pa.string()),
        ("variant", pa.string()),
        ("sample", pa.int32()),
        ("attempt", pa.int32()),
        ("finish_reason", pa.string()),
        ("max_new_tokens", pa.int32()),
        ("good", pa.bool_()),
        ("reason", pa.string()),  # null for good rows
        ("object", pa.string()),
    ]
)

_FROM_OBJECT = [name for name in STORED.names if name not in ("good", "reason", "object")]


def stored_keys(storage: Storage, manifest: Manifest | None) -> pa.Table:
    """Every row of a manifest as STORED columns, in its order; empty for a dataset without one.

    Raises DatasetError, also for an object that is gone.
    """
    if manifest is None:
        return STORED.empty_table()
    return pa.concat_tables(
        [object_keys(storage, manifest.shards, good=True), object_keys(storage, manifest.quarantine, good=False)]
    )


def object_keys(storage: Storage, refs: Iterable[ObjectRef], *, good: bool) -> pa.Table:
    """The rows of these objects as STORED columns, row by row as they lie in them."""
    tables = [STORED.empty_table()]
    for ref in refs:
        found = listed_table(storage, ref.path, _FROM_OBJECT if good else [*_FROM_OBJECT, "reason"])
        columns = {name: found.column(name) for name in found.column_names}
        columns["good"] = pa.array([good] * found.num_rows, pa.bool_())
        columns.setdefault("reason", pa.nulls(found.num_rows, pa.string()))
        columns["object"] = pa.array([ref.path] * found.num_rows, pa.string())
        tables.append(pa.table({name: columns[name] for name in STORED.names}, schema=STORED))
    return pa.concat_tables(tables)


def measured_rows(storage: Storage, good: Iterable[ObjectRef], bad: Iterable[ObjectRef]) -> pa.Table:
    """The rows of these objects as MEASURED columns: in the same order as `object_keys` of both."""
    tables = [MEASURED.empty_table()]
    for ref in good:
        table = listed_table(storage, ref.path, [name for name in MEASURED.names if name != "reason"])
        tables.append(table.append_column("reason", pa.nulls(table.num_rows, pa.string())))
    tables += [listed_table(storage, ref.path, MEASURED.names) for ref in bad]
    return pa.concat_tables([table.select(MEASURED.names).cast(MEASURED) for table in tables])


def listed_table(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """An object that a manifest lists, or some of its columns. Raises DatasetError, also when it is gone."""
    try:
        return storage.read_table(path, columns)
    except FileNotFoundError:
        raise missing_object(path) from None


def requested_rows(
    storage: Storage, path: str, keys: Collection[tuple[str, int]], columns: Sequence[str] | None = None
) -> pa.Table:
    """An object's rows of these requests, (row_key, attempt). Raises FileNotFoundError when it is gone."""
    table = storage.read_table(path, columns)
    requests = zip(table["row_key"].to_pylist(), table["attempt"].to_pylist(), strict=True)
    return table.filter(pa.array([request in keys for request in requests], pa.bool_()))


def row_keys(table: pa.Table) -> set[tuple[str, int]]:
    """The (row_key, attempt) of a table's rows."""
    return set(zip(table["row_key"].to_pylist(), table["attempt"].to_pylist(), strict=True))


def newest_attempts(table: pa.Table) -> dict[str, int]:
    """By row_key the largest attempt among a table's rows."""
    newest = table.group_by("row_key").aggregate([("attempt", "max")])
    return dict(zip(newest["row_key"].to_pylist(), newest["attempt_max"].to_pylist(), strict=True))


def row_counts(storage: Storage, manifest: Manifest) -> tuple[int, int]:
    """Distinct row_keys of a manifest: (those with a good row, those with quarantined rows only)."""
    stored = stored_keys(storage, manifest)
    good = pc.count_distinct(stored.filter(stored["good"])["row_key"]).as_py()
    return good, pc.count_distinct(stored["row_key"]).as_py() - good


def missing_object(path: str) -> DatasetError:
    """The error for an object that is listed and not there."""
    return DatasetError(
        "an object of the dataset is gone",
        value=path,
        expected="every object that a manifest lists, or is about to list, in its place",
        remedy="restore it from a copy; an object of the present run is made again by running again",
    )
