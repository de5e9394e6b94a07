"""Whether a store lets only one writer create an object, and what stands in for it where it does not.

Nearly all S3 servers refuse a conditional put of a name that is taken; some take
no notice of the condition, and two runs that seal at once would each believe to
have won. So each run asks first: a hidden object of one fixed name is put twice.

Where the second put is not refused, the recipe may say `commit: lock`. A lock is
an object with the holder's random id: who reads his own id back after SETTLE_S
holds it. That rests on a put taking less than SETTLE_S, and is why it is not the
rule. A lock that a dead run left is never broken by another: clocks of machines
differ, so a person removes it.
"""

from __future__ import annotations

import getpass
import json
import logging
import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from draftmill.dataset.objects import Objects, Outcome, StorageFault
from draftmill.dataset.patience import Patience
from draftmill.errors import DatasetError

PROBE = ".draftmill-create-only"
"""The object the question is put with. Hidden: no listing of a Storage shows it."""

LOCK = "manifests/.lock"

SETTLE_S = 5.0
"""Seconds between putting a lock and believing it: far more than a put of 100 bytes takes."""

POLL_S = 2.0
"""Seconds between looks at a lock that another holds."""

LOCK_PATIENCE_S = 300.0
"""Seconds to wait for it: a commit is a few small requests, a compaction's a minute."""

log = logging.getLogger("draftmill.dataset")


def honours_create_only(objects: Objects) -> bool:
    """Whether a second create of a name is refused. One request when it was asked before, else two."""
    try:
        return any(objects.create(PROBE, _id().encode()) is Outcome.EXISTS for _ in range(2))
    except StorageFault as fault:
        if fault.unsupported:
            return False
        raise


def not_honoured(url: str) -> DatasetError:
    """What a run says that will not go on without."""
    return DatasetError(
        f"{url}: the storage lets two writers create the same object",
        value=f"a second conditional put (If-None-Match: *) of {PROBE} was not refused",
        expected="412 Precondition Failed, so that of two runs that seal at once one wins",
        remedy="use a server that honours it, or, where only one run at a time seals, set `commit: lock` in the recipe",
    )


@contextmanager
def locked(objects: Objects, patience: Patience, url: str) -> Iterator[None]:
    """Holds the dataset's lock object. Raises DatasetError when another keeps it, or StorageFault."""
    own = {"id": _id(), "who": who(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    _acquire(objects, patience, url, own)
    try:
        yield
    finally:
        _release(objects, patience, url, own)


def _acquire(objects: Objects, patience: Patience, url: str, own: dict[str, str]) -> None:
    waited_s = 0.0
    while True:
        holder = patience.persist(lambda: _holder(objects))
        if holder is None:
            patience.persist(lambda: objects.replace(LOCK, json.dumps(own).encode()))
            patience.pause(SETTLE_S)
            holder = patience.persist(lambda: _holder(objects))
            if holder == own:
                return
        if waited_s >= LOCK_PATIENCE_S or patience.stopped:
            raise _held(url, holder or {}, waited_s)
        patience.pause(POLL_S)
        waited_s += POLL_S


def _release(objects: Objects, patience: Patience, url: str, own: dict[str, str]) -> None:
    try:
        if patience.persist(lambda: _holder(objects)) == own:
            patience.persist(lambda: objects.remove(LOCK))
    except (StorageFault, FileNotFoundError) as error:
        # What was to be done under the lock is done, or has its own error.
        log.warning("the lock %s/%s could not be removed and keeps others waiting; remove it: %s", url, LOCK, error)


def _holder(objects: Objects) -> dict[str, Any] | None:
    try:
        data = json.loads(objects.read(LOCK))
    except FileNotFoundError:
        return None
    except ValueError:  # not ours, and yet somebody's
        return {}
    return data if isinstance(data, dict) else {}


def _held(url: str, holder: dict[str, Any], waited_s: float) -> DatasetError:
    return DatasetError(
        f"another run holds the lock of {url}",
        value=f"{holder.get('who', 'unknown')} since {holder.get('since', 'unknown')}; {waited_s:.0f} s were waited",
        expected="a lock that is given back after a commit",
        remedy=f"if that run is dead, remove {url}/{LOCK}; then run again: what was finished is kept",
    )


def _id() -> str:
    return uuid.uuid4().hex


def who() -> str:
    """user@host, for people: who holds a lock, who sealed a version."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = "unknown"
    return f"{user}@{platform.node()}"
