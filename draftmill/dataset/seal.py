"""The commit: a run's objects on top of the newest manifest, as version N + 1.

Objects first, each looked at again just before; then one `create` of the
manifest, the last write. Whoever dies before it leaves version N as it was.
A lost race is merged onto the winner and tried as N + 2. After any doubt (an
answer that got lost) the file itself says whose it is: `seal_id`.

Refuses: a manifest without rows; an object that is missing or has another
size. Makes no manifest when the set of rows stays the same, so that sealing
the same change twice is sealing it once.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from draftmill.dataset import completions
from draftmill.dataset.manifest import MAX_FAILED, Manifest, ObjectRef, Parent, newest, read_manifest
from draftmill.dataset.merge import Fate, Merged, merge
from draftmill.dataset.schema import FORMAT
from draftmill.dataset.statistics import Statistics, statistics
from draftmill.dataset.storage import Outcome, Storage
from draftmill.dataset.stored import measured_rows, missing_object, object_keys, stored_keys
from draftmill.errors import DatasetError

ROUNDS = 16
"""Races lost before giving up; each means that another run has just sealed."""

DOUBTS = 3
"""Puts of one manifest whose answer got lost before giving up."""

LOOKS_AT_ONCE = 8
"""Objects looked at in parallel before the commit: they are small requests to one storage."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The final numbers, in rows, of the manifest (`good_rows`, `quarantined_rows`) and of this seal (the rest).

    `held`: row_keys that have quarantined rows only; a row_key has one good row at
    most, so that `good_rows + held` are the manifest's distinct row_keys.
    `attempts`: good rows by attempt, as a manifest's JSON has it: {"0": 90, "1": 10}.
    `reasons`: quarantined rows by reason. `superseded`: left for their successors.
    `replaced`: older attempts that left for newer ones. `moved`: judged anew, that
    is named in `dropped` and brought again. `sealed_before`: rows of the change whose request was sealed already,
    as (good in the change, good as sealed) -> how many; the sealed one stays.
    """

    good_rows: int
    quarantined_rows: int
    held: int
    attempts: Mapping[str, int]
    reasons: Mapping[str, int]
    superseded: int
    replaced: int
    dropped: int
    moved: int
    sealed_before: Counter[tuple[bool, bool]]


@dataclass(frozen=True, slots=True)
class Change:
    """What a run brings: objects of SHARD, QUARANTINE and REJECTED columns, and what the manifest says about it.

    `rejected` replaces the parent's. `dropped`: (row_key, attempt) of sealed
    rows that leave; new rows of the same key take their place. `succession`: as in
    Plan; without it nothing is superseded. `counts`: a mapping, or a function of the final numbers.
    """

    good: Sequence[ObjectRef] = ()
    bad: Sequence[ObjectRef] = ()
    rejected: Sequence[ObjectRef] = ()
    dropped: Collection[tuple[str, int]] = frozenset()
    succession: Mapping[tuple[str, int], str] = field(default_factory=dict)
    consumed: Sequence[str] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    structures: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Any] | Callable[[Tally], Mapping[str, Any]] = field(default_factory=dict)
    failed: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Sealed:
    """The newest manifest; `sealed` False when the rows were the same and no new one was made.

    `before`: the statistics to compare the manifest's with, its parent's; None for a first manifest.
    """

    manifest: Manifest
    sealed: bool
    tally: Tally
    before: Statistics | None = None


def seal(storage: Storage, change: Change) -> Sealed:
    """Commit a change. Raises DatasetError; then no manifest of ours exists."""
    parent = newest(storage)
    seal_id = uuid.uuid4().hex
    new, measured = _keys(storage, change), measured_rows(storage, change.good, change.bad)
    for _ in range(ROUNDS):
        merged = merge(stored_keys(storage, parent), new, dropped=change.dropped, succession=change.succession)
        shards = _objects(storage, "shards", [*_of(parent, "shards"), *change.good], merged)
        quarantine = _objects(storage, "quarantine", [*_of(parent, "quarantine"), *change.bad], merged)
        tally = _tally(merged, shards, quarantine)
        if parent is not None and _paths(shards, quarantine) == _paths(parent.shards, parent.quarantine):
            return Sealed(parent, False, tally)
        fresh = measured.filter(pa.array(merged.fresh, pa.bool_()))
        manifest = _manifest(storage, change, parent, shards, quarantine, tally, fresh, seal_id)
        _check_objects(storage, manifest)
        if _commit(storage, manifest):
            return Sealed(manifest, True, tally, parent.statistics if parent else None)
        parent = read_manifest(storage, manifest.version)
    raise DatasetError(
        "another run was faster at every try to seal",
        value=f"{ROUNDS} races lost",
        expected="few runs that seal at the same time",
        remedy="run again when the others are done: what was generated is kept",
    )


def _keys(storage: Storage, change: Change) -> pa.Table:
    return pa.concat_tables(
        [object_keys(storage, change.good, good=True), object_keys(storage, change.bad, good=False)]
    )


def _of(parent: Manifest | None, name: str) -> list[ObjectRef]:
    return [] if parent is None else list(getattr(parent, name))


def _paths(shards: Sequence[ObjectRef], quarantine: Sequence[ObjectRef]) -> set[str]:
    return {ref.path for ref in (*shards, *quarantine)}


def _objects(storage: Storage, folder: str, refs: Sequence[ObjectRef], merged: Merged) -> list[ObjectRef]:
    """The objects without the rows that leave: untouched, written anew, or gone when nothing is left of them."""
    by_path = {ref.path: ref for ref in refs}
    # An object that both the parent and the change name has each row twice here: it stays where either does.
    rows = merged.rows[merged.rows["object"].isin(list(by_path))]
    stays = (rows["fate"] == Fate.STAYS).groupby([rows["object"], rows.groupby(["object", "new"]).cumcount()]).any()
    masks = {str(path): mask.to_list() for path, mask in stays.groupby(level=0)}
    kept = []
    for path, ref in by_path.items():
        mask = masks.get(path, [])
        if mask and all(mask):
            kept.append(ref)
        elif any(mask):
            kept.append(storage.put_table(folder, storage.read_table(path).filter(pa.array(mask))))
    return kept


def _tally(merged: Merged, shards: Sequence[ObjectRef], quarantine: Sequence[ObjectRef]) -> Tally:
    return Tally(
        good_rows=sum(ref.rows for ref in shards),
        quarantined_rows=sum(ref.rows for ref in quarantine),
        held=merged.held,
        attempts={str(attempt): number for attempt, number in sorted(merged.attempts.items())},
        reasons=dict(sorted(merged.reasons.items())),
        superseded=merged.count(Fate.SUPERSEDED),
        replaced=merged.count(Fate.REPLACED),
        dropped=merged.count(Fate.DROPPED) - merged.moved,
        moved=merged.moved,
        sealed_before=merged.sealed_before,
    )


def _manifest(
    storage: Storage,
    change: Change,
    parent: Manifest | None,
    shards: list[ObjectRef],
    quarantine: list[ObjectRef],
    tally: Tally,
    fresh: pa.Table,
    seal_id: str,
) -> Manifest:
    if tally.good_rows + tally.quarantined_rows == 0:
        raise DatasetError(
            "nothing to seal: the manifest would have no rows",
            value=f"{len(change.failed)} failed rows, {tally.dropped} dropped",
            expected="at least one row, good or quarantined",
            remedy="see to the failed rows or to the source, then run again",
        )
    counts = change.counts(tally) if callable(change.counts) else change.counts
    consumed = {*change.consumed, *(parent.consumed if parent else ())}
    version = parent.version + 1 if parent else 1
    # A variant that the recipe no longer has may still have rows.
    structures = {**(parent.structures if parent else {}), **change.structures}
    return Manifest(
        format=FORMAT,
        version=version,
        parent=Parent(version=parent.version, sha256=parent.sha256) if parent else None,
        seal_id=seal_id,
        created_at=datetime.now(UTC),
        shards=shards,
        quarantine=quarantine,
        rejected=list(change.rejected),
        # Parts that were removed need no mention.
        consumed=sorted(consumed.intersection(storage.list(completions.FOLDER))),
        recipe=dict(change.recipe),
        identity={**(parent.identity if parent else {}), **change.identity},
        structures=structures,
        provenance=dict(change.provenance),
        counts={
            **counts,
            "good_rows": tally.good_rows,
            "quarantined_rows": tally.quarantined_rows,
            "attempts": dict(tally.attempts),
        },
        statistics=_statistics(fresh, parent, version, structures, change.recipe),
        failed=[dict(row) for row in change.failed[:MAX_FAILED]],
    ).hashed()


def _statistics(
    fresh: pa.Table,
    parent: Manifest | None,
    version: int,
    structures: Mapping[str, Mapping[str, Any]],
    recipe: Mapping[str, Any],
) -> Statistics | None:
    """Of the fresh rows; where there are none, the parent's go on."""
    if fresh.num_rows:
        return statistics(fresh, manifest=version, structures=structures, recipe=recipe)
    return parent.statistics if parent else None


def _check_objects(storage: Storage, manifest: Manifest) -> None:
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        sizes = pool.map(lambda ref: _size(storage, ref), manifest.objects)
        for ref, size in zip(manifest.objects, sizes, strict=True):
            if size is None:
                raise missing_object(ref.path)
            if size != ref.bytes:
                raise DatasetError(
                    f"{ref.path} is not what was written",
                    value=f"{size} bytes",
                    expected=f"{ref.bytes} bytes",
                    remedy="run `draftmill verify`, restore the file, then run again",
                )


def _size(storage: Storage, ref: ObjectRef) -> int | None:
    try:
        return storage.size(ref.path)
    except FileNotFoundError:
        return None


def _commit(storage: Storage, manifest: Manifest) -> bool:
    """Create the manifest; whether the version is ours. What the file says outranks what the storage answered."""
    doubt: DatasetError | None = None
    for _ in range(DOUBTS):
        try:
            if storage.create(manifest.path, manifest.to_bytes()) is Outcome.CREATED:
                return True
        except DatasetError as error:
            doubt = error
        if storage.exists(manifest.path):
            return read_manifest(storage, manifest.version).seal_id == manifest.seal_id
    raise doubt or DatasetError(
        f"{manifest.path} cannot be created",
        value="it exists for a put and is missing for a read",
        expected="a storage that shows what was written",
        remedy="see to the storage, then run again",
    )
