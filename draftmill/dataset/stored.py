"""What a manifest's rows are, as keys: enough to plan and to seal, without any ids.

Reads key columns of each shard and quarantine object, a few bytes a row. What many rows
share (variant, reason, the object) is a dictionary column.

Rows that are to be written again, or gone on from, are read whole and checked first
(`sound_table`): under a new name nothing would tell any more that they were damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.numbers import numbered
from draftmill.dataset.scan import tables
from draftmill.dataset.schema import QUARANTINE
from draftmill.dataset.statistics import MEASURED
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.errors import DatasetError
from draftmill.identity import sha256

SHARED = pa.dictionary(pa.int32(), pa.string())
"""A text that many rows have."""

STORED = pa.schema(
    [
        ("row_key", pa.string()),
        ("prompt_key", pa.string()),
        ("variant", SHARED),
        ("sample", pa.int32()),
        ("attempt", pa.int32()),
        ("finish_reason", SHARED),
        ("max_new_tokens", pa.int32()),
        ("good", pa.bool_()),
        ("reason", SHARED),  # null for good rows
        ("object", SHARED),
    ]
)

REQUESTS = pa.schema([("row_key", pa.string()), ("attempt", pa.int32())])
"""(row_key, attempt): the identity of a request."""


def stored_keys(storage: Storage, manifest: Manifest | None, columns: Sequence[str] = STORED.names) -> pa.Table:
    """Every row of a manifest as STORED columns, or some of them, in its order; empty for a dataset without one.

    Raises DatasetError, also for an object that is gone.
    """
    if manifest is None:
        return STORED.empty_table().select(columns)
    good = object_keys(storage, manifest.shards, good=True, columns=columns)
    bad = object_keys(storage, manifest.quarantine, good=False, columns=columns)
    return pa.concat_tables([good, bad]).unify_dictionaries()


def object_keys(
    storage: Storage, refs: Iterable[ObjectRef], *, good: bool, columns: Sequence[str] = STORED.names
) -> pa.Table:
    """The rows of these objects as STORED columns, row by row as they lie in them."""
    refs = list(refs)
    in_object = [name for name in columns if name not in ("good", "object") and not (good and name == "reason")]
    found = [STORED.empty_table().select(columns)]
    for ref, table in _listed(storage, refs, pa.schema([QUARANTINE.field(name) for name in in_object])):
        given = {"good": pa.scalar(good), "reason": pa.scalar(None, pa.string()), "object": pa.scalar(ref.path)}
        arrays = [table[name] if name in in_object else pa.repeat(given[name], table.num_rows) for name in columns]
        shared = [pa.types.is_dictionary(STORED.field(name).type) for name in columns]
        arrays = [array.dictionary_encode() if share else array for array, share in zip(arrays, shared, strict=True)]
        found.append(pa.table(arrays, schema=pa.schema([STORED.field(name) for name in columns])))
    return pa.concat_tables(found).unify_dictionaries()


def _listed(storage: Storage, refs: Sequence[ObjectRef], schema: pa.Schema) -> Iterator[tuple[ObjectRef, pa.Table]]:
    """Of each object the schema's columns. Raises DatasetError, also for one that is gone."""
    found = tables(storage, [ref.path for ref in refs], schema)
    for ref in refs:
        try:
            yield ref, next(found)
        except FileNotFoundError:
            raise missing_object(ref.path) from None


def measured_rows(storage: Storage, good: Iterable[ObjectRef], bad: Iterable[ObjectRef]) -> pa.Table:
    """The rows of these objects as MEASURED columns: in the same order as `object_keys` of both."""
    place = MEASURED.get_field_index("reason")
    found = [MEASURED.empty_table()]
    for _, table in _listed(storage, list(good), MEASURED.remove(place)):
        found.append(table.add_column(place, MEASURED.field(place), pa.nulls(table.num_rows, pa.string())))
    found += [table for _, table in _listed(storage, list(bad), MEASURED)]
    return pa.concat_tables(found)


def listed_table(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """An object that a manifest lists, or some of its columns. Raises DatasetError, also when it is gone."""
    try:
        return storage.read_table(path, columns)
    except FileNotFoundError:
        raise missing_object(path) from None


def sound_bytes(storage: Storage, ref: ObjectRef) -> bytes:
    """A listed object whose bytes are those that were listed. Raises DatasetError, also when it is gone."""
    try:
        return _checked(storage, ref.path, ref.sha256)
    except FileNotFoundError:
        raise missing_object(ref.path) from None


def sound_table(storage: Storage, ref: ObjectRef) -> pa.Table:
    """The same as a table: what rows must be read by that are written again. Raises as `sound_bytes`."""
    return _parsed(ref.path, sound_bytes(storage, ref))


def not_as_listed(path: str, value: str, expected: str) -> DatasetError:
    """The error for an object that is there and is not what was written."""
    return DatasetError(
        f"{path} is not what was written",
        value=value,
        expected=expected,
        remedy="run `draftmill verify` and restore the file from a copy; nothing was sealed. A file that no "
        "version lists may be removed instead: what it held is made, or asked, again",
    )


def _checked(storage: Storage, path: str, wanted: str) -> bytes:
    data = storage.read(path)
    if (found := sha256(data)) != wanted:
        raise not_as_listed(path, f"SHA-256 {found}", f"SHA-256 {wanted}")
    return data


def _parsed(path: str, data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    try:
        return pq.ParquetFile(pa.BufferReader(data)).read(columns=None if columns is None else list(columns))
    except pa.ArrowException as error:
        raise not_as_listed(path, " ".join(str(error).split()), "a Parquet file") from error


def requested_rows(
    storage: Storage, path: str, keys: Collection[tuple[str, int]], columns: Sequence[str] | None = None
) -> pa.Table:
    """An object's rows of these requests, (row_key, attempt), to go on from.

    Raises FileNotFoundError when it is gone, DatasetError when it is not what its name says. Read whole: the ids are
    most of it, and without the rest nothing could be checked.
    """
    table = _parsed(path, _checked(storage, path, PurePosixPath(path).stem), columns)
    requests = zip(table["row_key"].to_pylist(), table["attempt"].to_pylist(), strict=True)
    return table.filter(pa.array([request in keys for request in requests], pa.bool_()))


def row_keys(table: pa.Table) -> set[tuple[str, int]]:
    """The (row_key, attempt) of a table's rows."""
    return set(zip(table["row_key"].to_pylist(), table["attempt"].to_pylist(), strict=True))


def requests_table(requests: Collection[tuple[str, int]]) -> pa.Table:
    """(row_key, attempt) pairs as a REQUESTS table."""
    row_keys, attempts = zip(*requests, strict=True) if requests else ((), ())
    return pa.table([pa.array(row_keys, pa.string()), pa.array(attempts, pa.int32())], schema=REQUESTS)


def used_up(parts: pa.Table, sealed: Sequence[pa.Table]) -> list[str]:
    """The parts all of whose rows are sealed, in this attempt or a later one.

    `parts`: row_key, attempt, part; `sealed`: tables with row_key and attempt.
    """
    wanted, *known = numbered(parts["row_key"], *(table["row_key"] for table in sealed))
    newest = np.full(1 + max(keys.max(initial=-1) for keys in (wanted, *known)), -1, np.int32)
    for keys, table in zip(known, sealed, strict=True):
        np.maximum.at(newest, keys, table["attempt"].to_numpy())
    waiting = parts["part"].filter(pa.array(parts["attempt"].to_numpy() > newest[wanted], pa.bool_()))
    return sorted(set(parts["part"].unique().to_pylist()) - set(waiting.unique().to_pylist()))


def newest_attempts(table: pa.Table) -> dict[str, int]:
    """By row_key the largest attempt among a table's rows."""
    newest = table.group_by("row_key").aggregate([("attempt", "max")])
    return dict(zip(newest["row_key"].to_pylist(), newest["attempt_max"].to_pylist(), strict=True))


def row_counts(storage: Storage, manifest: Manifest) -> tuple[int, int]:
    """Distinct row_keys of a manifest: (those with a good row, those with quarantined rows only)."""
    stored = stored_keys(storage, manifest, ["row_key", "good"])
    good = pc.count_distinct(stored.filter(stored["good"])["row_key"]).as_py()
    return good, pc.count_distinct(stored["row_key"]).as_py() - good


def missing_object(path: str) -> DatasetError:
    """The error for an object that is listed and not there."""
    return DatasetError(
        "an object of the dataset is gone",
        value=path,
        expected="every object that a manifest lists, or is about to list, in its place",
        remedy="run again: an object of the present run is made again. One of a sealed version: restore it from a "
        "copy; without one, and if only the newest version lists it (`draftmill verify` says what is gone), move that "
        "manifest away and run again: what the version before lacks comes back from completions/ or is asked anew",
    )
