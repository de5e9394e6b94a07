"""Reads everything the newest manifest lists and names every fault.

The manifest (hash, name, chain of parents, counts), each object (presence,
bytes, SHA-256, Parquet, columns, rows), each row (`row_faults`), keys across
objects; with a `judge`, the structure of each good row. Faults are values: a
damaged dataset makes a long list, never an exception. What was not looked at is
said too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from draftmill.dataset.manifest import FOLDER, Manifest, ObjectRef, manifest_path, read_manifest, versions
from draftmill.dataset.row_faults import row_faults
from draftmill.dataset.schema import QUARANTINE, REJECTED, SHARD
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError
from draftmill.identity import sha256

Judge = Callable[[pa.Table], list[str | None]]
"""A SHARD table to one reason per row, None for a row that is ok."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and in which file."""

    file: str
    fault: str


@dataclass(frozen=True, slots=True)
class Verification:
    """`rows`: good rows read; `not_verified`: what was not looked at."""

    rows: int
    faults: list[Fault]
    not_verified: list[str]

    @property
    def ok(self) -> bool:
        return not self.faults


@dataclass(slots=True)
class _Seen:
    """What the objects read so far add up to. Keys are (row_key, attempt)."""

    faults: list[Fault] = field(default_factory=list)
    good: Counter[str] = field(default_factory=Counter)
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)

    def say(self, file: str, fault: str) -> None:
        self.faults.append(Fault(file, fault))


def verify(storage: Storage, *, judge: Judge | None = None) -> Verification:
    """Verify the newest manifest and all it lists. Reads one object at a time into memory."""
    seen = _Seen()
    try:
        manifest = _newest(storage, seen)
    except DatasetError as error:  # the listing itself
        seen.say(f"{FOLDER}/", _line(error))
        manifest = None
    if manifest is None:
        return Verification(0, seen.faults, ["the objects: there is no sound manifest that lists them"])
    _chain(storage, manifest, seen)
    for name, schema in (("shards", SHARD), ("quarantine", QUARANTINE), ("rejected", REJECTED)):
        for ref in getattr(manifest, name):
            table = _object(storage, ref, schema, seen)
            if table is not None:
                _rows(ref.path, name, table, judge, seen)
    _totals(manifest, seen)
    skipped = ["working objects, and files that the manifest does not list"]
    if judge is None:
        skipped.insert(0, "the structure of the rows: no judge was given")
    return Verification(seen.rows["shards"], seen.faults, skipped)


def _newest(storage: Storage, seen: _Seen) -> Manifest | None:
    known = versions(storage)
    if not known:
        seen.say(f"{FOLDER}/", "there is no manifest")
        return None
    return _sound(storage, known[-1], seen)


def _sound(storage: Storage, version: int, seen: _Seen) -> Manifest | None:
    try:
        return read_manifest(storage, version)
    except DatasetError as error:
        seen.say(manifest_path(version), _line(error))
        return None


def _chain(storage: Storage, manifest: Manifest, seen: _Seen) -> None:
    child: Manifest | None = manifest
    while child is not None and child.parent is not None:
        if child.parent.version != child.version - 1:
            seen.say(child.path, f"its parent is version {child.parent.version}, not {child.version - 1}")
            return
        parent = _sound(storage, child.parent.version, seen)
        if parent is not None and parent.sha256 != child.parent.sha256:
            seen.say(parent.path, f"not the manifest that version {child.version} was built on")
        child = parent
    if child is not None and child.version != 1:
        seen.say(child.path, "has no parent, and is not version 1")


def _object(storage: Storage, ref: ObjectRef, schema: pa.Schema, seen: _Seen) -> pa.Table | None:
    try:
        data = storage.read(ref.path)
    except FileNotFoundError:
        seen.say(ref.path, "missing")
        return None
    except DatasetError as error:
        seen.say(ref.path, _line(error))
        return None
    if len(data) != ref.bytes:
        seen.say(ref.path, f"{len(data)} bytes, the manifest says {ref.bytes}")
    if (found := sha256(data)) != ref.sha256:
        seen.say(ref.path, f"its SHA-256 is {found}, the manifest says {ref.sha256}")
        return None  # what it holds now is nobody's word
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError) as error:
        seen.say(ref.path, f"no readable Parquet: {' '.join(str(error).split())}")
        return None
    if table.num_rows != ref.rows:
        seen.say(ref.path, f"{table.num_rows} rows, the manifest says {ref.rows}")
    if not table.schema.equals(schema):
        seen.say(ref.path, f"other columns than the format's: {', '.join(_differences(table.schema, schema))}")
        return None
    return table


def _differences(found: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    for name in wanted.names:
        if name not in found.names:
            yield f"{name} is missing"
        elif found.field(name).type != wanted.field(name).type:
            yield f"{name} is {found.field(name).type}, not {wanted.field(name).type}"
    yield from (f"{name} is unknown" for name in found.names if name not in wanted.names)
    if found.names != wanted.names and sorted(found.names) == sorted(wanted.names):
        yield "their order"


def _rows(path: str, name: str, table: pa.Table, judge: Judge | None, seen: _Seen) -> None:
    seen.rows[name] += table.num_rows
    if name == "rejected":
        return
    keys = table.column("row_key").to_pylist()
    seen.requests.update(zip(keys, table.column("attempt").to_pylist(), strict=True))
    if name == "shards":
        seen.good.update(keys)
    faults = row_faults(table, good=name == "shards")
    for fault in faults:
        seen.say(path, fault)
    if judge is not None and name == "shards" and not faults:
        _judged(path, keys, judge(table), seen)


def _judged(path: str, keys: list[str], reasons: list[str | None], seen: _Seen) -> None:
    for reason, number in sorted(Counter(reason for reason in reasons if reason is not None).items()):
        first = keys[reasons.index(reason)]
        seen.say(path, f"{number} rows are {reason} under the manifest's structure, first {first}")


def _totals(manifest: Manifest, seen: _Seen) -> None:
    twice = [key for key, times in seen.good.items() if times > 1]
    if twice:
        seen.say(manifest.path, f"{len(twice)} row_keys stand twice in its shards, first {twice[0]}")
    again = [key for key, times in seen.requests.items() if times > 1]
    if again:
        seen.say(manifest.path, f"{len(again)} (row_key, attempt) stand twice in its objects, first {again[0]}")
    for count, refs in (("good_rows", manifest.shards), ("quarantined_rows", manifest.quarantine)):
        if manifest.counts.get(count) != (total := sum(ref.rows for ref in refs)):
            seen.say(manifest.path, f"counts.{count} is {manifest.counts.get(count)}, its objects have {total}")


def _line(error: DatasetError) -> str:
    return f"{error.what} (got {error.value}, expected {error.expected})"
