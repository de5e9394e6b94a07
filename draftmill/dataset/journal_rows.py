"""The journal's table: completions as SQLite rows and back.

One column for each of COMPLETION's; ids are int32 little-endian blobs, lists JSON,
times milliseconds since 1970 (UTC). `number` is the order in which they came. All
functions run on the journal's one thread; each write is one transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.arrays import ID_DTYPE
from draftmill.dataset.schema import COMPLETION, FORMAT, IDS, ROW, plain_value, row_of
from draftmill.errors import DatasetError
from draftmill.records import Answer, Completion

_NAMES = tuple(COMPLETION.names)
_IDS = frozenset(field.name for field in COMPLETION if field.type == IDS)
_JSON = frozenset({"earlier", "spans", "matched"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_CREATE = f"""
CREATE TABLE IF NOT EXISTS completion (
  number INTEGER PRIMARY KEY, uploaded INTEGER NOT NULL DEFAULT 0, {", ".join(_NAMES)}, UNIQUE (row_key, attempt));
CREATE INDEX IF NOT EXISTS waiting ON completion (number) WHERE uploaded = 0;
CREATE INDEX IF NOT EXISTS part_of ON completion (whole) WHERE whole IS NOT NULL;
"""
_INSERT = (
    f"INSERT INTO completion ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))})"
    " ON CONFLICT (row_key, attempt) DO NOTHING"
)
_SELECT = f"SELECT {', '.join(_NAMES)} FROM completion"


def connect(path: Path) -> sqlite3.Connection:
    """The journal's file, made when missing. Raises sqlite3.Error; DatasetError for another format's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made on the opener's thread, used on the writer's only. Transactions are ours: no implicit BEGIN.
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found not in (0, FORMAT):
        raise DatasetError(
            f"the journal {path} is of another version",
            value=f"format {found}",
            expected=f"format {FORMAT}",
            remedy="finish the run with the draftmill that began it, or move the file away: its rows are asked again",
        )
    connection.executescript(f"{_CREATE} PRAGMA user_version = {FORMAT};")


def insert(connection: sqlite3.Connection, completions: Sequence[Completion]) -> int:
    """Commit completions; how many were new. The first for a request stays."""
    return _write(connection, _INSERT, [_to_sql(completion) for completion in completions])


def find(connection: sqlite3.Connection, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Completion]:
    """The completions of these requests; one look-up in the index a key."""
    found = {}
    for key in keys:
        values = connection.execute(f"{_SELECT} WHERE row_key = ? AND attempt = ?", key).fetchone()
        if values is not None:
            found[key] = _from_sql(values)
    return found


def attempts(connection: sqlite3.Connection, row_keys: Sequence[str]) -> dict[tuple[str, int], Completion]:
    """All completions of these row_keys, whichever attempt."""
    found = {}
    for row_key in row_keys:
        for values in connection.execute(f"{_SELECT} WHERE row_key = ?", (row_key,)).fetchall():
            completion = _from_sql(values)
            found[completion.row.key] = completion
    return found


def pending(connection: sqlite3.Connection) -> list[Completion]:
    """Completions that are in no part yet, in the order they came."""
    return [_from_sql(values) for values in connection.execute(f"{_SELECT} WHERE uploaded = 0 ORDER BY number")]


def mark_uploaded(connection: sqlite3.Connection, keys: Sequence[tuple[str, int]]) -> None:
    """They are in a part now."""
    _write(connection, "UPDATE completion SET uploaded = 1 WHERE row_key = ? AND attempt = ?", keys)


def forget(connection: sqlite3.Connection, keys: Sequence[tuple[str, int]]) -> None:
    """They are sealed, and with them the attempts before, which they go on from or stand for, and the turns in them."""
    _write(connection, "DELETE FROM completion WHERE row_key = ? AND attempt <= ?", keys)
    # A turn may have been asked as a later attempt than the row that holds it.
    _write(connection, "DELETE FROM completion WHERE whole = ?", [(row_key,) for row_key, _ in keys])


def _write(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> int:
    connection.execute("BEGIN IMMEDIATE")
    try:
        changed = connection.executemany(statement, values).rowcount
        connection.execute("COMMIT")
    except BaseException:
        # SQLite itself rolls back on a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return max(changed, 0)


def _to_sql(completion: Completion) -> tuple[Any, ...]:
    row, answer = completion.row, completion.answer
    values = {name: plain_value(row, name) if name in ROW.names else getattr(answer, name) for name in _NAMES}
    for name in _IDS:
        if values[name] is not None:
            values[name] = np.ascontiguousarray(values[name], ID_DTYPE).tobytes()
    for name in _JSON:
        values[name] = json.dumps(values[name])
    values["created_at"] = (values["created_at"] - _EPOCH) // _MILLISECOND
    return tuple(values.values())


def _from_sql(columns: Sequence[Any]) -> Completion:
    values = dict(zip(_NAMES, columns, strict=True))
    for name in _IDS:
        if values[name] is not None:
            values[name] = np.frombuffer(values[name], ID_DTYPE)
    for name in _JSON:
        values[name] = json.loads(values[name])
    values["created_at"] = _EPOCH + values["created_at"] * _MILLISECOND
    row = row_of({name: values.pop(name) for name in ROW.names})
    return Completion(row, Answer(**values))
