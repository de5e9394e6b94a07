"""Housekeeping as the commands do it: a dataset by its URL, its storage looked at first.

`compact` takes no lock: it changes no row, and a run that seals before or after
it loses nothing. `gc --delete` holds this machine's lock on the dataset, since
what a run here is about to seal must not go; runs elsewhere are spared by age.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from draftmill.dataset.card import write_card
from draftmill.dataset.compact import Compacted, compact
from draftmill.dataset.gc import Garbage, garbage, remove
from draftmill.dataset.journal import journal_path
from draftmill.dataset.lock import ProcessLock
from draftmill.dataset.status import existing
from draftmill.dataset.storage import open_storage
from draftmill.errors import DatasetError, RecipeError
from draftmill.progress import listener

AGE = re.compile(r"(\d+)([mhd])")

UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def compact_dataset(url: str) -> Compacted:
    """Compacts, and brings the card up to date. Raises RecipeError without a dataset, DatasetError."""
    storage = open_storage(url)
    storage.check()
    storage.check_writing(existing(storage).recipe.get("commit", "create"))
    listener().stage("looking for small objects")
    compacted = compact(storage)
    if compacted.manifest is not None:
        try:
            write_card(storage)
        except DatasetError as error:  # what it says is derived, and the next seal writes it again
            listener().stage(f"compacted, but the card could not be written: {error}")
    return compacted


def collect_garbage(url: str, *, delete: bool, keep: int, grace: timedelta) -> Garbage:
    """What may go; with `delete`, what is gone. Raises RecipeError without a dataset; DatasetError, also with `delete`
    while a run of the dataset is in progress on this machine."""
    storage = open_storage(url)
    storage.check()
    with _lock(url) if delete else contextlib.nullcontext():
        found = garbage(storage, now=datetime.now(UTC), keep=keep, grace=grace)
        return remove(storage, found) if delete else found


def parse_age(text: str) -> timedelta:
    """`90m`, `24h` or `7d`. Raises RecipeError."""
    match = AGE.fullmatch(text.strip())
    if match is None:
        raise RecipeError(
            "no age", value=text, expected="minutes, hours or days: 90m, 24h, 7d", remedy="correct --older-than"
        )
    return timedelta(**{UNITS[match[2]]: int(match[1])})


@contextlib.contextmanager
def _lock(url: str) -> Iterator[None]:
    lock = ProcessLock(journal_path(url).with_suffix(".lock"))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
