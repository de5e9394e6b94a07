"""Completions on their way: from the journal to the dataset, and back.

A part in `completions/` is a Parquet object of whole completions, as they came
in. Parts are looked up by (row_key, attempt), never by chunk or by run; of two
completions for one request the first wins (parts in sorted order).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from draftmill.dataset.journal import Journal, Key
from draftmill.dataset.schema import completions_table, table_completions
from draftmill.dataset.storage import Storage
from draftmill.records import Completion

FOLDER = "completions"

UNFINISHED = pa.schema([("row_key", pa.string()), ("attempt", pa.int32()), ("part", pa.string())])


def upload(storage: Storage, journal: Journal) -> int:
    """The journal's pending rows as one part; how many they were. Blocks: call it from a thread.

    Killed between the two writes, the next upload makes the same part again, or one that overlaps it.
    """
    pending = journal.pending()
    if pending:
        storage.put_table(FOLDER, completions_table(pending))
        journal.mark_uploaded([(c.row.row_key, c.row.attempt) for c in pending])
    return len(pending)


def unfinished(storage: Storage, consumed: Collection[str]) -> pa.Table:
    """The requests answered in parts that no manifest has consumed: row_key, attempt, part. Reads the keys only."""
    skip = frozenset(consumed)
    tables = []
    for part in storage.list(FOLDER):
        if part not in skip:
            keys = _keys(storage, part)
            tables.append(keys.append_column("part", pa.array([part] * keys.num_rows, pa.string())))
    return pa.concat_tables(tables) if tables else UNFINISHED.empty_table()


def read_completions(storage: Storage, parts: Iterable[str], keys: Iterable[Key]) -> dict[Key, Completion]:
    """The completions of these requests out of these parts. Raises FileNotFoundError for a part that is gone."""
    wanted = set(keys)
    found: dict[Key, Completion] = {}
    for part in sorted(set(parts)):
        columns = _keys(storage, part).to_pydict()
        mask = [key in wanted for key in zip(columns["row_key"], columns["attempt"], strict=True)]
        if any(mask):
            for completion in table_completions(storage.read_table(part).filter(pa.array(mask))):
                found.setdefault((completion.row.row_key, completion.row.attempt), completion)
    return found


def _keys(storage: Storage, part: str) -> pa.Table:
    return storage.read_table(part, ["row_key", "attempt"])
