"""The commit: a run's objects on top of the newest manifest, as version N + 1.

`next_version` says how a version comes to be ours; here is what is in it. A lost
race is merged onto the winner and tried as N + 2.

A version that has rows of two sets of rules says so (`judged_alike`), whichever
of the two runs came second: the next one judges all rows again.

Refuses: a manifest without rows; an object of the change that is not what was
written; one of the parent that is missing or has another size. Makes no manifest
when the set of rows stays the same, so that sealing the same change twice is
sealing it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from draftmill.dataset import completions
from draftmill.dataset.manifest import MAX_FAILED, DataRef, Manifest, ObjectRef, Parent
from draftmill.dataset.merge import NEEDED, Fate, Merged, merge
from draftmill.dataset.next_version import seal_next
from draftmill.dataset.plan import SUCCESSION
from draftmill.dataset.recount import Planned, Recount, recount_planned
from draftmill.dataset.schema import FORMAT
from draftmill.dataset.standing import put_standing, standing
from draftmill.dataset.statistics import Statistics, statistics
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import REQUESTS, measured_rows, object_keys, sound_bytes, stored_keys
from draftmill.dataset.tally import Tally as Tally
from draftmill.dataset.tally import final_tally, tally_of
from draftmill.errors import DatasetError
from draftmill.judging.changed import changed_rules

CHECKED_AT_ONCE = 4
"""Objects of a change that are in memory at once to be hashed: a chunk's rows each."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a run brings: objects of SHARD, QUARANTINE and REJECTED columns, and what the manifest says about it.

    `rejected` replaces the parent's. `dropped`: REQUESTS, sealed rows that leave;
    new rows of the same key take their place. `succession`: as in Plan; without it
    nothing is superseded. `planned`: what the change was planned from, so that its
    numbers can be counted again after a lost race. `judged`: the version whose rows
    all were judged by this change's rules, if it was sealed with others. `inherited`:
    the fields that are the parent's word, of whatever parent it comes to be. `counts`:
    a mapping, or a function of the final numbers.
    """

    good: Sequence[ObjectRef] = ()
    bad: Sequence[ObjectRef] = ()
    rejected: Sequence[ObjectRef] = ()
    dropped: pa.Table = field(default_factory=REQUESTS.empty_table)
    succession: pa.Table = field(default_factory=SUCCESSION.empty_table)
    planned: Planned | None = None
    judged: int | None = None
    inherited: Callable[[Manifest], Mapping[str, Any]] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    structures: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Any] | Callable[[Tally], Mapping[str, Any]] = field(default_factory=dict)
    failed: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Sealed:
    """The newest manifest; `sealed` False when the rows were the same and no new one was made.

    `requests`: the change's rows, (row_key, attempt); they are in the dataset, or a row that stands for them is.
    `before`: the statistics to compare the manifest's with, its parent's; None for a first manifest.
    `met`: the version that the change met, the parent or, where nothing was sealed, the manifest; 0 for none.
    """

    manifest: Manifest
    sealed: bool
    tally: Tally
    requests: pa.Table
    before: Statistics | None = None
    met: int = 0


def seal(storage: Storage, change: Change) -> Sealed:
    """Commit a change. Raises DatasetError; the newest manifest is then the one before (but see `next_version`)."""
    builder = _Builder(storage, change)
    manifest = seal_next(storage, builder.build)
    parent, tally = builder.last
    if manifest is not None:
        return Sealed(manifest, True, tally, builder.requests, parent.statistics if parent else None, _version(parent))
    assert parent is not None, "a first manifest always has something new"
    return Sealed(parent, False, tally, builder.requests, met=parent.version)


class _Builder:
    """A change as the next version of whatever parent; `last`: the parent and the numbers of the last try."""

    def __init__(self, storage: Storage, change: Change) -> None:
        self._storage, self._change = storage, change
        _check(storage, [*change.good, *change.bad])
        self._new = pa.concat_tables(
            [
                object_keys(storage, change.good, good=True, columns=NEEDED),
                object_keys(storage, change.bad, good=False, columns=NEEDED),
            ]
        )
        self.last: tuple[Manifest | None, Tally]

    @property
    def requests(self) -> pa.Table:
        return self._new.select(REQUESTS.names)

    def build(self, parent: Manifest | None) -> Manifest | None:
        change, storage = _on(self._change, parent), self._storage
        if parent is not None and _brings_nothing(change, parent):
            self.last = parent, tally_of(parent)
            return None
        stored = stored_keys(storage, parent, NEEDED)
        merged = merge(stored, self._new, dropped=change.dropped, succession=change.succession)
        shards, quarantine = _objects(storage, change, parent, merged)
        tally = final_tally(merged, shards, quarantine, self._recount(parent, stored, merged))
        self.last = parent, tally
        if parent is not None and _paths(shards, quarantine) == _paths(parent.shards, parent.quarantine):
            return None
        is_fresh = pa.array(merged.fresh, pa.bool_())
        del merged  # at a million rows 100 MB, and the next two steps want as much
        return _manifest(
            change,
            parent,
            shards=shards,
            quarantine=quarantine,
            tally=tally,
            consumed=completions.used_up(storage, parent.consumed if parent else (), [stored, self._new]),
            fresh=measured_rows(storage, change.good, change.bad).filter(is_fresh),
        )

    def _recount(self, parent: Manifest | None, stored: pa.Table, merged: Merged) -> Recount | None:
        planned = self._change.planned
        if planned is None or planned.manifest == _version(parent):
            return None
        stays = pa.array((merged.rows["fate"] == Fate.STAYS).to_numpy())
        after = pa.concat_tables([stored, self._new]).filter(stays)
        return recount_planned(self._storage, planned, brought=self._new, after=after)


def _check(storage: Storage, refs: Sequence[ObjectRef]) -> None:
    """Whether the change's objects are what was written.

    All of them, though this run wrote most of them itself a moment ago: a receipt of an earlier run vouches for the
    size only, and what a run has put together over hours is sealed for good, and its completions forgotten. It is one
    read of what the run brings, a fraction of the time that its rows took to generate.
    """
    with ThreadPoolExecutor(CHECKED_AT_ONCE) as pool:
        for _ in pool.map(lambda ref: len(sound_bytes(storage, ref)), refs):
            pass


def _on(change: Change, parent: Manifest | None) -> Change:
    inherited = change.inherited(parent) if change.inherited and parent else {}
    return replace(change, **inherited)


def _judged_alike(change: Change, parent: Manifest | None) -> bool:
    """Whether the parent's rows and the change's were judged by the same rules."""
    if parent is None or parent.version == change.judged:
        return True
    changed = changed_rules(parent.recipe, parent.structures, change.recipe, change.structures)
    return parent.judged_alike and not changed


def _version(parent: Manifest | None) -> int:
    return parent.version if parent else 0


def _brings_nothing(change: Change, parent: Manifest) -> bool:
    """Whether the rows are the parent's for sure, and the run's numbers too."""
    unchanged = not any(map(len, (change.good, change.bad, change.dropped, change.succession)))
    return unchanged and (change.planned is None or change.planned.manifest == parent.version)


def _paths(shards: Sequence[ObjectRef], quarantine: Sequence[ObjectRef]) -> set[str]:
    return {ref.path for ref in (*shards, *quarantine)}


def _objects(
    storage: Storage, change: Change, parent: Manifest | None, merged: Merged
) -> tuple[list[DataRef], list[DataRef]]:
    """(shards, quarantine) of the rows that stay."""
    old = [*parent.shards, *parent.quarantine] if parent else []
    found = standing(merged, old, [*change.good, *change.bad], version=_version(parent) + 1)
    good = {ref.path for ref in (*(parent.shards if parent else ()), *change.good)}
    shards = [each for path, each in found.items() if path in good]
    quarantine = [each for path, each in found.items() if path not in good]
    return put_standing(storage, "shards", shards), put_standing(storage, "quarantine", quarantine)


def _manifest(
    change: Change,
    parent: Manifest | None,
    *,
    shards: list[DataRef],
    quarantine: list[DataRef],
    tally: Tally,
    consumed: list[str],
    fresh: pa.Table,
) -> Manifest:
    """Without its seal_id, which `next_version` gives it."""
    if tally.good_rows + tally.quarantined_rows == 0:
        raise DatasetError(
            "nothing to seal: the manifest would have no rows",
            value=f"{len(change.failed)} failed rows, {tally.dropped} dropped",
            expected="at least one row, good or quarantined",
            remedy="see to the failed rows or to the source, then run again",
        )
    counts = change.counts(tally) if callable(change.counts) else change.counts
    version = _version(parent) + 1
    # A variant that the recipe no longer has may still have rows.
    structures = {**(parent.structures if parent else {}), **change.structures}
    return Manifest(
        format=FORMAT,
        version=version,
        parent=Parent(version=parent.version, sha256=parent.sha256) if parent else None,
        seal_id="",
        created_at=datetime.now(UTC),
        shards=shards,
        quarantine=quarantine,
        rejected=list(change.rejected),
        consumed=consumed,
        recipe=dict(change.recipe),
        identity={**(parent.identity if parent else {}), **change.identity},
        structures=structures,
        judged_alike=_judged_alike(change, parent),
        provenance=dict(change.provenance),
        counts={**counts, **tally.to_counts()},
        statistics=_statistics(fresh, parent, version, structures, change.recipe),
        failed=[dict(row) for row in change.failed[:MAX_FAILED]],
    )


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
