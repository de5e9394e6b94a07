"""Completions on their way: from the journal to the dataset, and back.

A part in `completions/` is a Parquet object of whole completions, as they came
in. Parts are looked up by (row_key, attempt), never by chunk or by run; of two
completions for one request the first wins (parts in sorted order). One that `gc`
takes between listing and reading had no row that is waited for: it is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset import stored
from draftmill.dataset.journal import Journal, Key
from draftmill.dataset.scan import tables_there
from draftmill.dataset.schema import COMPLETION, FORMAT, completions_table, table_completions
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.errors import DatasetError
from draftmill.records import Completion

FOLDER = "completions"

UNFINISHED = pa.schema([("row_key", pa.string()), ("attempt", pa.int32()), ("part", stored.SHARED)])

_OF_PARTS = pa.schema(
    [("row_key", pa.string()), ("attempt", pa.int32()), ("whole", pa.string()), ("part", stored.SHARED)]
)

GENERATED = pa.schema(
    [
        ("row_key", pa.string()),
        ("attempt", pa.int32()),
        ("finish_type", stored.SHARED),
        ("max_new_tokens", pa.int32()),
        ("part", stored.SHARED),
    ]
)

NEWEST_COLUMN = "line"
"""A column of parts that none of an older format has."""


def upload(storage: Storage, journal: Journal) -> int:
    """The journal's pending rows as one part; how many they were. Blocks: call it from a thread.

    Killed between the two writes, the next upload makes the same part again, or one that overlaps it.
    """
    part = upload_part(storage, journal)
    return part.rows if part else 0


def upload_part(storage: Storage, journal: Journal) -> ObjectRef | None:
    """The same; the part, None where nothing is pending."""
    pending = journal.pending()
    if not pending:
        return None
    part = storage.put_table(FOLDER, completions_table(pending))
    journal.mark_uploaded([completion.row.key for completion in pending])
    return part


def unfinished(storage: Storage, consumed: Collection[str]) -> pa.Table:
    """The requests answered in parts that no manifest has consumed: row_key, attempt, part. Reads the keys only.

    An earlier turn of a row counts as that row's first attempt: once the row is sealed in any attempt it waits for
    nothing, and is only there to be gone on from. Its own attempt says nothing of the row's: a turn that was cut is
    asked anew under a row that never was.
    """
    return _waiting(storage, storage.list(FOLDER), consumed)


def _waiting(storage: Storage, listed: Sequence[str], consumed: Collection[str]) -> pa.Table:
    """The same of the parts listed."""
    skip = frozenset(consumed)
    found = _of_parts(storage, [part for part in listed if part not in skip], _OF_PARTS)
    rows = pc.coalesce(found["whole"], found["row_key"])
    attempts = pc.if_else(found["whole"].is_valid(), pa.scalar(0, pa.int32()), found["attempt"])
    return pa.table([rows, attempts, found["part"]], schema=UNFINISHED)


def used_up(storage: Storage, consumed: Collection[str], sealed: Sequence[pa.Table]) -> list[str]:
    """The parts all of whose rows are in these tables (row_key, attempt), in that attempt or a later one, and those
    consumed before that are still there. A part with one other row waits for its prompt."""
    listed = storage.list(FOLDER)
    return sorted({*set(listed).intersection(consumed), *stored.used_up(_waiting(storage, listed, consumed), sealed)})


def generated(storage: Storage) -> pa.Table:
    """All requests ever answered, as far as their parts are still there, consumed or not: GENERATED columns only."""
    return _of_parts(storage, storage.list(FOLDER), GENERATED)


def read_completions(
    storage: Storage, parts: Iterable[str], keys: Iterable[Key], *, turns: Collection[str] = ()
) -> dict[Key, Completion]:
    """The completions of these requests out of these parts, and of the row_keys `turns` all attempts.

    Raises FileNotFoundError for a part that is gone.
    """
    wanted, in_any_attempt = set(keys), set(turns)
    found: dict[Key, Completion] = {}
    for part in sorted(set(parts)):
        columns = _keys(storage, part).to_pydict()
        requests = zip(columns["row_key"], columns["attempt"], strict=True)
        mask = [key in wanted or key[0] in in_any_attempt for key in requests]
        if any(mask):
            for completion in table_completions(storage.read_table(part).filter(pa.array(mask))):
                found.setdefault(completion.row.key, completion)
    return found


def _of_parts(storage: Storage, parts: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The schema's columns of these parts, as far as they are there; the last of them the part's own path."""
    names = schema.names[:-1]
    # Columns that are not there are left out: the newest one tells a part of an older format.
    wanted = pa.schema([COMPLETION.field(name) for name in (*names, NEWEST_COLUMN)])
    found = [schema.empty_table()]
    for part, table in tables_there(storage, parts, wanted):
        if table.column_names != wanted.names:
            raise _other_format(part)
        name = pa.repeat(part, table.num_rows).dictionary_encode()
        found.append(table.select(names).append_column("part", name).cast(schema))
    return pa.concat_tables(found).unify_dictionaries()


def _other_format(part: str) -> DatasetError:
    return DatasetError(
        f"{part} is of another format",
        value=f"no column {NEWEST_COLUMN}",
        expected=f"format {FORMAT}",
        remedy="finish the run with the draftmill that began it, or move the file away: its rows are asked again",
    )


def _keys(storage: Storage, part: str) -> pa.Table:
    return storage.read_table(part, ["row_key", "attempt"])
