"""A run's commit as a whole: the seal, what the journal may forget then, and the card."""

from __future__ import annotations

import logging

from draftmill.dataset.card import write_card
from draftmill.dataset.journal import Journal
from draftmill.dataset.seal import Change, Sealed, seal
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import row_keys
from draftmill.errors import DatasetError

FORGET_ROWS = 65_536
"""Rows the journal is told to forget at once: as Python objects a million would be a third of a gigabyte."""

log = logging.getLogger("draftmill.commit")


def commit(storage: Storage, journal: Journal, change: Change) -> Sealed:
    """Seals the change. Raises DatasetError; then the dataset and the journal are as they were."""
    sealed = seal(storage, change)
    for start in range(0, sealed.requests.num_rows, FORGET_ROWS):
        journal.forget(row_keys(sealed.requests.slice(start, FORGET_ROWS)))
    if sealed.sealed:
        _write_card(storage)
    return sealed


def _write_card(storage: Storage) -> None:
    try:
        write_card(storage)
    except DatasetError as error:
        # What it says is derived: the next seal, or `draftmill compact`, writes it again.
        log.warning("the dataset is sealed, but its card could not be written: %s", error)
