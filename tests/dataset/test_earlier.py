"""The structures that rows were first sealed with, out of the manifests that a newer one names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from draftmill.dataset.earlier import earlier_structures
from draftmill.dataset.manifest import Manifest, manifest_path
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage
from draftmill.judging.structure import Structure
from draftmill.records import Thinking


def structure(*tail: int) -> Structure:
    return Structure(
        name="plain", thinking=Thinking.NONE, open_ids=(), close_ids=(), end_ids=(2,), foreign_ids=(), tail_ids=tail,
        blank_ids=(), highest_id=99, evidence=(),
    )  # fmt: skip


def sealed(storage: Storage, rows: pa.Table, tail: int, **changes: Any) -> Manifest:
    structures = {"default": structure(tail).to_json()}
    return seal(storage, Change(good=[storage.put_table("shards", rows)], structures=structures, **changes)).manifest


def tails(storage: Storage, manifest: Manifest) -> Sequence[int]:
    return [structures["default"].tail_ids[0] for structures in earlier_structures(storage, manifest)]


def test_of_every_version_that_brought_rows_newest_first(
    storage: Storage, stored_rows: Callable[..., pa.Table]
) -> None:
    manifests = [sealed(storage, stored_rows({"key": key}), tail) for key, tail in (("a", 5), ("b", 6), ("c", 7))]
    assert tails(storage, manifests[-1]) == [7, 6, 5]
    assert tails(storage, manifests[0]) == [5]


def test_a_version_whose_rows_are_all_gone_does_not_count(
    storage: Storage, stored_rows: Callable[..., pa.Table], key_of: Callable[[str], str]
) -> None:
    sealed(storage, stored_rows({"key": "a"}), 5)
    dropped = pa.table({"row_key": [key_of("a")], "attempt": pa.array([0], pa.int32())})
    manifest = sealed(storage, stored_rows({"key": "b"}), 6, dropped=dropped)
    assert tails(storage, manifest) == [6]


def test_a_manifest_that_is_gone_is_left_out(storage: Storage, stored_rows: Callable[..., pa.Table]) -> None:
    sealed(storage, stored_rows({"key": "a"}), 5)
    manifest = sealed(storage, stored_rows({"key": "b"}), 6)
    storage.remove(manifest_path(1))
    assert tails(storage, manifest) == [6]
