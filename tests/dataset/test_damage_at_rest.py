"""Damage never gets a new name: whoever writes rows again, or goes on from them, checks their object's bytes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from draftmill.dataset.ancestors import read_ancestors
from draftmill.dataset.compact import compact
from draftmill.dataset.manifest import newest, versions
from draftmill.dataset.parquet import parquet_bytes
from draftmill.dataset.plan import SUCCESSION
from draftmill.dataset.plan_turns import ANCESTORS
from draftmill.dataset.priors import PRIORS, read_priors
from draftmill.dataset.rejudge import rejudge
from draftmill.dataset.schema import QUARANTINE, SHARD, completions_table
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.dataset.stored import requests_table
from draftmill.errors import DatasetError
from draftmill.records import Completion, Reason, Verdict

Rows = Callable[..., pa.Table]
KeyOf = Callable[[str], str]

BAD = Verdict(Reason.DEGENERATE, "", None, 3, 2)


def spoil(storage: Storage, ref: ObjectRef, column: str = "input_ids") -> None:
    """Other ids in the same rows: a file that every reader of Parquet takes for sound."""
    table = storage.read_table(ref.path)
    ids = [[*row[:-1], row[-1] + 1] for row in table[column].to_pylist()]
    place = table.schema.get_field_index(column)
    spoiled = table.set_column(place, table.schema.field(place), pa.array(ids, table.schema.field(place).type))
    storage.replace(ref.path, parquet_bytes(spoiled))


@pytest.fixture
def good(storage: Storage, stored_rows: Rows) -> ObjectRef:
    """The spoiled shard of version 1: rows a, b. Beside it a quarantine object with row c, and another shard."""
    ref = storage.put_table("shards", stored_rows({"key": "a"}, {"key": "b"}))
    bad = storage.put_table("quarantine", stored_rows({"key": "c"}, reason="degenerate"))
    seal(storage, Change(good=[ref, storage.put_table("shards", stored_rows({"key": "d"}))], bad=[bad]))
    spoil(storage, ref)
    return ref


def _drop(storage: Storage, rows: Rows, key_of: KeyOf) -> Change:
    return Change(dropped=requests_table([(key_of("a"), 0)]))


def _supersede(storage: Storage, rows: Rows, key_of: KeyOf) -> Change:
    left = {"row_key": key_of("a"), "attempt": 0, "successor": key_of("new")}
    new = storage.put_table("shards", rows({"key": "new", "slot": "a"}))
    return Change(good=[new], succession=pa.Table.from_pylist([left], SUCCESSION))


def _ask_again(storage: Storage, rows: Rows, key_of: KeyOf) -> Change:
    return Change(good=[storage.put_table("shards", rows({"key": "a", "attempt": 1}))])


def _judge_anew(storage: Storage, rows: Rows, key_of: KeyOf) -> Change:
    bad = storage.put_table("quarantine", rows({"key": "a"}, reason="truncated"))
    return Change(bad=[bad], dropped=requests_table([(key_of("a"), 0)]))


@pytest.mark.parametrize("loses", [_drop, _supersede, _ask_again, _judge_anew])
def test_an_object_that_loses_rows(
    storage: Storage, good: ObjectRef, stored_rows: Rows, key_of: KeyOf, loses: Callable[..., Change]
) -> None:
    with pytest.raises(DatasetError, match=good.path):
        seal(storage, loses(storage, stored_rows, key_of))
    assert versions(storage) == [1]


def test_a_new_object_that_loses_rows_to_what_is_sealed(storage: Storage, good: ObjectRef, stored_rows: Rows) -> None:
    ours = storage.put_table("shards", stored_rows({"key": "d"}, {"key": "e"}))
    spoil(storage, ours)
    with pytest.raises(DatasetError, match=ours.path):
        seal(storage, Change(good=[ours]))
    assert versions(storage) == [1]


@pytest.mark.parametrize("kind", ["shards", "quarantine"])
def test_judging_stored_rows_anew(storage: Storage, good: ObjectRef, stored_rows: Rows, kind: str) -> None:
    manifest = newest(storage)
    assert manifest is not None
    if kind == "quarantine":
        storage.replace(good.path, parquet_bytes(stored_rows({"key": "a"}, {"key": "b"})))
        spoil(storage, manifest.quarantine[0])
    with pytest.raises(DatasetError, match=getattr(manifest, kind)[0].path):
        rejudge(storage, manifest, lambda table: [BAD] * table.num_rows)


def test_compacting(storage: Storage, good: ObjectRef) -> None:
    with pytest.raises(DatasetError, match=good.path):
        compact(storage)
    assert versions(storage) == [1]


def test_going_on_from_sealed_rows(storage: Storage, good: ObjectRef, key_of: KeyOf) -> None:
    prior = dict(zip(PRIORS.names, (key_of("a"), 1, 0, good.path), strict=True))
    with pytest.raises(DatasetError, match=good.path):
        read_priors(storage, pa.Table.from_pylist([prior], PRIORS))
    turn = dict(zip(ANCESTORS.names, (key_of("a"), 0, good.path), strict=True))
    with pytest.raises(DatasetError, match=good.path):
        read_ancestors(storage, pa.Table.from_pylist([turn], ANCESTORS))


def test_going_on_from_a_part(storage: Storage, completion: Callable[..., Completion], key_of: KeyOf) -> None:
    part = storage.put_table("completions", completions_table([completion("a")]))
    spoil(storage, part, "output_ids")
    prior = dict(zip(PRIORS.names, (key_of("a"), 1, 0, part.path), strict=True))
    with pytest.raises(DatasetError, match=part.path):
        read_priors(storage, pa.Table.from_pylist([prior], PRIORS))


@pytest.mark.parametrize("kind", ["shards", "quarantine"])
def test_any_byte_of_an_object_that_is_about_to_be_sealed(
    storage: Storage, stored_rows: Rows, tmp_path: Path, kind: str
) -> None:
    """Of the right size: between its upload and the seal lie hours, or another run that was killed."""
    reason = "degenerate" if kind == "quarantine" else None
    ref = storage.put_table(kind, stored_rows({"key": "a"}, {"key": "b"}, reason=reason))
    assert storage.read_table(ref.path).schema == (QUARANTINE if reason else SHARD)
    change = Change(bad=[ref]) if reason else Change(good=[ref])
    file = tmp_path / "dataset" / ref.path
    whole = file.read_bytes()
    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DatasetError, match=ref.path):
            seal(storage, change)
    assert versions(storage) == []
    file.write_bytes(whole)
    assert seal(storage, change).sealed


def test_other_objects_of_the_parent_are_not_read(
    storage: Storage, good: ObjectRef, stored_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night on top of a large dataset reads whole what it brings, and nothing else."""
    read: list[str] = []
    real = Storage.read

    def counting(self: Storage, path: str) -> bytes:
        read.append(path)
        return real(self, path)

    monkeypatch.setattr(Storage, "read", counting)
    ours = storage.put_table("shards", stored_rows({"key": "e"}))
    assert seal(storage, Change(good=[ours])).sealed
    assert [path for path in read if not path.startswith("manifests/")] == [ours.path]
