"""A run's commit as a whole: which parts are used up, the seal, what the journal may forget."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from draftmill.dataset import completions
from draftmill.dataset.journal import Journal
from draftmill.dataset.manifest import newest
from draftmill.dataset.seal import Change, Sealed, seal
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import newest_attempts, object_keys, row_keys, stored_keys


def commit(storage: Storage, journal: Journal, change: Change) -> Sealed:
    """Seals the change. Raises DatasetError; then the dataset and the journal are as they were."""
    new = pa.concat_tables([object_keys(storage, change.good, good=True), object_keys(storage, change.bad, good=False)])
    sealed = seal(storage, replace(change, consumed=_consumed(storage, new)))
    journal.forget(row_keys(new))
    return sealed


def _consumed(storage: Storage, new: pa.Table) -> list[str]:
    """Parts all of whose rows are sealed, or about to be, in this attempt or a later one.

    A part with one other row waits for its prompt.
    """
    manifest = newest(storage)
    sealed = newest_attempts(pa.concat_tables([new, stored_keys(storage, manifest)]))
    parts = completions.unfinished(storage, manifest.consumed if manifest else ()).to_pandas()
    known = [attempt <= sealed.get(key, -1) for key, attempt in zip(parts["row_key"], parts["attempt"], strict=True)]
    used_up = parts.assign(known=known).groupby("part")["known"].all()
    return sorted(used_up[used_up].index)
