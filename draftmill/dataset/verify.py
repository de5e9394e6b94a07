"""Reads everything the manifests vouch for and names every fault.

All manifests (text, hash, name, chain of parents); each object of the newest
(presence, bytes, SHA-256, Parquet, columns, rows, origins), each of its rows
(`row_faults`), keys across objects, counts; with a `judge`, the structure of
each good row. Objects that only older manifests list: their bytes and SHA-256,
as far as `gc` has left them. Faults are values: a damaged dataset makes a long
list, never an exception. What nothing vouches for is said too.

In memory: one object at a time, and the keys of all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from draftmill.dataset import completions
from draftmill.dataset.manifest import DataRef, Manifest, ObjectRef
from draftmill.dataset.row_faults import row_faults
from draftmill.dataset.schema import QUARANTINE, REJECTED, SHARD
from draftmill.dataset.storage import Storage
from draftmill.dataset.unverified import unverified
from draftmill.dataset.verify_chain import line, manifests
from draftmill.errors import DatasetError
from draftmill.identity import sha256
from draftmill.progress import listener

Judge = Callable[[pa.Table], list[str | None]]
"""A SHARD table to one reason per row, None for a row that is ok."""

KEYS = ["row_key", "attempt"]


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
    """What the objects read so far add up to. `good`, `bad`: the keys of their rows; `unread`: objects that had none
    to give."""

    faults: list[Fault] = field(default_factory=list)
    good: list[pa.Table] = field(default_factory=list)
    bad: list[pa.Table] = field(default_factory=list)
    unread: int = 0
    objects: int = 0
    total: int = 0

    def say(self, file: str, fault: str) -> None:
        self.faults.append(Fault(file, fault))

    def progress(self) -> None:
        """One more object."""
        self.objects += 1
        listener().wait(f"reading objects; {self.objects:,} of {self.total:,}")


def verify(storage: Storage, *, judge: Judge | None = None) -> Verification:
    """Verify the newest manifest and all it lists, and the manifests before it."""
    seen = _Seen()
    chain = manifests(storage, seen.say)
    newest = next(chain, None)
    listed = {newest.path, *(ref.path for ref in newest.objects)} if newest else set()
    older = _only_older(newest, chain, listed)
    seen.total = len(newest.objects if newest else ()) + len(older)
    skipped = []
    if newest is None:
        skipped.append("what the newest manifest lists: there is no sound one")
    else:
        _newest(storage, newest, judge if newest.judged_alike else None, seen)
        if not newest.judged_alike:
            skipped.append("the structure of the rows: two runs had other rules each; the next judges all rows again")
        elif judge is None:
            skipped.append("the structure of the rows: no judge was given")
    gone = [ref.path for ref in older if _bytes(storage, ref, seen, gone_is_fault=False) is None]
    if gone:
        skipped.append(f"{len(gone):,} objects that only older manifests list: gone, as after `draftmill gc`")
    damaged = {fault.file for fault in seen.faults}
    return Verification(_num_rows(seen.good), seen.faults, skipped + unverified(storage, listed | damaged))


def _newest(storage: Storage, manifest: Manifest, judge: Judge | None, seen: _Seen) -> None:
    for name, schema in (("shards", SHARD), ("quarantine", QUARANTINE), ("rejected", REJECTED)):
        for ref in getattr(manifest, name):
            _listed(storage, manifest, name, ref, schema, judge, seen)
    _totals(manifest, seen)


def _only_older(newest: Manifest | None, chain: Iterable[Manifest | None], listed: set[str]) -> list[ObjectRef]:
    """What older manifests list and the newest does not; `listed` takes their paths. An object that both list, with
    other words, is in both."""
    known = {_identity(ref) for ref in newest.objects} if newest else set()
    found: dict[tuple[str, int, str], ObjectRef] = {}
    for manifest in filter(None, chain):
        found |= {_identity(ref): ref for ref in manifest.objects if _identity(ref) not in known}
        listed |= {manifest.path, *(ref.path for ref in manifest.objects)}
    return list(found.values())


def _identity(ref: ObjectRef) -> tuple[str, int, str]:
    return ref.path, ref.bytes, ref.sha256


def _listed(
    storage: Storage,
    manifest: Manifest,
    name: str,
    ref: ObjectRef,
    schema: pa.Schema,
    judge: Judge | None,
    seen: _Seen,
) -> None:
    if isinstance(ref, DataRef):
        _origins(manifest, ref, seen)
    table = _object(storage, ref, schema, seen)
    if table is None:
        seen.unread += 1
    elif name != "rejected":
        _rows(ref.path, name, table, judge, seen)


def _origins(manifest: Manifest, ref: DataRef, seen: _Seen) -> None:
    if (total := sum(run.rows for run in ref.made)) != ref.rows:
        seen.say(manifest.path, f"{ref.path}: `made` is of {total} rows, the object has {ref.rows}")
    if later := [run.manifest for run in ref.made if run.manifest > manifest.version]:
        seen.say(manifest.path, f"{ref.path}: `made` names version {max(later)}, which is later than the manifest")


def _bytes(storage: Storage, ref: ObjectRef, seen: _Seen, *, gone_is_fault: bool = True) -> bytes | None:
    """The object's bytes if they are what the manifest says; None when it is gone. b"" when it is damaged."""
    seen.progress()
    try:
        data = storage.read(ref.path)
    except FileNotFoundError:
        if gone_is_fault:
            seen.say(ref.path, "missing")
        return None
    except DatasetError as error:
        seen.say(ref.path, line(error))
        return b""
    if len(data) != ref.bytes:
        seen.say(ref.path, f"{len(data)} bytes, the manifest says {ref.bytes}")
    if (found := sha256(data)) != ref.sha256:
        seen.say(ref.path, f"its SHA-256 is {found}, the manifest says {ref.sha256}")
        return b""  # what it holds now is nobody's word
    return data


def _object(storage: Storage, ref: ObjectRef, schema: pa.Schema, seen: _Seen) -> pa.Table | None:
    data = _bytes(storage, ref, seen)
    if not data:
        return None
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
    good = name == "shards"
    (seen.good if good else seen.bad).append(table.select(KEYS).combine_chunks())
    faults = row_faults(table, good=good)
    for fault in faults:
        seen.say(path, fault)
    if judge is not None and good and not faults:
        _judged(path, table["row_key"].to_pylist(), judge(table), seen)


def _judged(path: str, keys: list[str], reasons: list[str | None], seen: _Seen) -> None:
    for reason, number in sorted(Counter(reason for reason in reasons if reason is not None).items()):
        first = keys[reasons.index(reason)]
        seen.say(path, f"{number} rows are {reason} under the manifest's structure, first {first}")


def _totals(manifest: Manifest, seen: _Seen) -> None:
    twice = _twice(seen.good, ["row_key"])
    if twice.num_rows:
        seen.say(manifest.path, f"{twice.num_rows} row_keys stand twice in its shards, first {twice['row_key'][0]}")
    again = _twice([*seen.good, *seen.bad], KEYS)
    if again.num_rows:
        first = (again["row_key"][0].as_py(), again["attempt"][0].as_py())
        seen.say(manifest.path, f"{again.num_rows} (row_key, attempt) stand twice in its objects, first {first}")
    for count, refs in (("good_rows", manifest.shards), ("quarantined_rows", manifest.quarantine)):
        if manifest.counts.get(count) != (total := sum(ref.rows for ref in refs)):
            seen.say(manifest.path, f"counts.{count} is {manifest.counts.get(count)}, its objects have {total}")
    if not seen.unread and (said := manifest.counts.get("attempts")) != (found := _attempts(seen.good)):
        seen.say(manifest.path, f"counts.attempts is {said}, its shards have {found}")
    _consumed(manifest, seen)


def _twice(tables: Sequence[pa.Table], columns: list[str]) -> pa.Table:
    """The keys that stand more than once, each once, by how early they stand."""
    if not tables:
        return pa.table({name: pa.array([], SHARD.field(name).type) for name in columns})
    keys = pa.concat_tables(tables).select(columns)
    counted = keys.group_by(columns, use_threads=False).aggregate([([], "count_all")])
    return counted.filter(pc.greater(counted["count_all"], 1))


def _attempts(tables: Sequence[pa.Table]) -> dict[str, int]:
    counts: Counter[int] = Counter()
    for table in tables:
        for pair in pc.value_counts(table["attempt"].combine_chunks()).to_pylist():
            counts[pair["values"]] += pair["counts"]
    return {str(attempt): number for attempt, number in sorted(counts.items(), key=lambda item: str(item[0]))}


def _consumed(manifest: Manifest, seen: _Seen) -> None:
    strange = [part for part in manifest.consumed if not part.startswith(f"{completions.FOLDER}/")]
    if strange:
        seen.say(manifest.path, f"consumed names {strange[0]}, which is no part in {completions.FOLDER}/")
    if len(set(manifest.consumed)) != len(manifest.consumed):
        seen.say(manifest.path, "consumed names a part twice")


def _num_rows(tables: Sequence[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)
