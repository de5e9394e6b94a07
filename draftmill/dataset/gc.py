"""What no recent manifest needs, and its removal.

Recent are the newest few manifests and each that was the newest within the
grace time: a run in progress planned against one of them. Needed is what they
list. The rest of shards/, quarantine/ and rejected/ goes once it is older than
the grace time, since a run may have written objects that it has not sealed yet.
Of working objects: a part in completions/ when every recent manifest has
consumed it, so that an unsealed completion is never lost; prompts/ and verdicts/
by age, unless a young part shows that a run is going on. Of files: what a killed
writer left behind under a temporary name.

Promises: a manifest is never removed, nor anything the newest lists; that is
read again right before each batch of removals, and each object's time right
before its own: what a run takes up again becomes young first (`objects.FRESH`).
What is not draftmill's by its place and name stays. A run that loses an object
all the same ends with an error that names it and is run again: objects are
looked at just before a commit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from draftmill.dataset import completions, verdicts
from draftmill.dataset.manifest import Manifest, manifest_path, read_manifest
from draftmill.dataset.status import existing
from draftmill.dataset.storage import Entry, Storage
from draftmill.errors import DatasetError
from draftmill.progress import listener

KEEP = 3
"""Newest manifests whose rows can still be read: last night's, to compare with, and one to go back to."""

GRACE = timedelta(hours=24)
"""How young an object may be to be a running run's: a night, and the day until somebody looks."""

DATA = ("shards", "quarantine", "rejected")

WORKING = ("prompts", verdicts.FOLDER)
"""Objects that a run makes again, without a request, when they are gone."""

OURS = re.compile(rf"(?:{'|'.join((*DATA, *WORKING, completions.FOLDER))})/[0-9a-f]{{64}}\.parquet")
"""Objects named by content. Files of other names are not ours to remove."""

TEMPORARY = re.compile(r"(?:[^/]+/)*\.[0-9a-f]{32}\.tmp")
"""What a local writer writes to before the file has its name (local_objects.py)."""

BATCH = 200
"""Objects removed between two looks at the newest manifest."""

REMOVALS_AT_ONCE = 8
"""In parallel: each is a small request to one storage."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """`entries`: what may go, by path. `kept`: the versions whose objects stay, newest first. `since`: what has a later
    time is young."""

    entries: list[Entry]
    kept: list[int]
    since: datetime

    @property
    def folders(self) -> dict[str, dict[str, int]]:
        """By folder (or `temporary files`) the number of objects and their bytes."""
        objects: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for entry in self.entries:
            folder = "temporary files" if TEMPORARY.fullmatch(entry.path) else entry.path.split("/")[0]
            objects[folder] += 1
            size[folder] += entry.bytes
        return {folder: {"objects": objects[folder], "bytes": size[folder]} for folder in sorted(objects)}

    def to_json(self, *, deleted: bool) -> dict[str, Any]:
        return {
            "deleted": deleted,
            "objects": len(self.entries),
            "bytes": sum(entry.bytes for entry in self.entries),
            "folders": self.folders,
            "kept_manifests": self.kept,
        }


def garbage(storage: Storage, *, now: datetime, keep: int = KEEP, grace: timedelta = GRACE) -> Garbage:
    """What may go. Changes nothing. `keep` >= 1. Raises RecipeError without a dataset, DatasetError when a manifest it
    needs is damaged."""
    # Listed before the manifests are read: an object sealed in between is then in one of them.
    entries = {entry.path: entry for entry in storage.entries("", hidden=True)}
    since = now - grace
    recent = list(_recent(storage, entries, keep=keep, since=since))
    listed = set.union(*map(_listed, recent))
    consumed = set.intersection(*(set(manifest.consumed) for manifest in recent))
    old = [entry for entry in entries.values() if entry.modified < since]
    sealed = set(recent[0].consumed)
    running = any(
        _folder(entry.path) == completions.FOLDER and entry.path not in sealed and entry.modified >= since
        for entry in entries.values()
    )
    found = [entry for entry in old if _may_go(entry.path, listed=listed, consumed=consumed, running=running)]
    return Garbage(sorted(found, key=lambda entry: entry.path), [manifest.version for manifest in recent], since)


def remove(storage: Storage, found: Garbage) -> Garbage:
    """Removes it, but for what the newest manifest lists by now and what is young by now; what was removed.

    Raises DatasetError; what was removed until then is removed, and the rest is found again.
    """
    removed: list[Entry] = []
    with ThreadPoolExecutor(REMOVALS_AT_ONCE) as pool:
        for start in range(0, len(found.entries), BATCH):
            listener().wait(f"removing; {start:,} of {len(found.entries):,} objects are gone")
            needed = _listed(existing(storage))
            batch = [entry for entry in found.entries[start : start + BATCH] if entry.path not in needed]
            went = pool.map(lambda entry: _remove(storage, entry.path, found.since), batch)
            removed += [entry for entry, is_gone in zip(batch, went, strict=True) if is_gone]
    _check_nothing_lost(existing(storage), removed)
    return Garbage(removed, found.kept, found.since)


def _remove(storage: Storage, path: str, since: datetime) -> bool:
    """Whether it is gone: not when it is young by now."""
    try:
        if storage.entry(path).modified >= since:
            return False
    except FileNotFoundError:
        return True
    storage.remove(path)
    return True


def _check_nothing_lost(manifest: Manifest, removed: Collection[Entry]) -> None:
    """A run looks at its objects and then seals; between the two, one that it took up again may have gone."""
    lost = sorted(_listed(manifest).intersection(entry.path for entry in removed))
    if lost:
        raise DatasetError(
            f"manifest {manifest.version}, sealed meanwhile, lists {len(lost)} objects that were just removed",
            value=lost[0],
            expected="no run that takes up old objects while they are removed",
            remedy=f"restore them from a copy; without one, and while it is the newest, move {manifest.path} away and "
            "run again: what the version before lacks comes back from completions/ or is asked anew",
        )


def _listed(manifest: Manifest) -> set[str]:
    return {ref.path for ref in manifest.objects}


def _recent(storage: Storage, entries: dict[str, Entry], *, keep: int, since: datetime) -> Iterator[Manifest]:
    """The newest `keep`, and all that were the newest after `since`; newest first."""
    manifest = existing(storage)
    yield manifest
    number = 1
    while manifest.parent is not None:
        # A version was the newest until the next one was written; one that the listing does not have yet is new.
        successor = entries.get(manifest_path(manifest.version))
        if number >= keep and successor is not None and successor.modified < since:
            return
        manifest = read_manifest(storage, manifest.parent.version)
        yield manifest
        number += 1


def _may_go(path: str, *, listed: Collection[str], consumed: Collection[str], running: bool) -> bool:
    if TEMPORARY.fullmatch(path):
        return True
    if not OURS.fullmatch(path):
        return False
    folder = _folder(path)
    if folder in DATA:
        return path not in listed
    return path in consumed if folder == completions.FOLDER else not running


def _folder(path: str) -> str:
    return path.split("/")[0]
