"""The objects of merged rows: what stands of each, and which version brought it.

Merged rows lie object by object in the order of the references they were read
from, so an object is a slice of them. One that keeps all its rows stays as it
is; one that loses some is written anew, from bytes that are checked: damage must
not get a new name under which nothing tells it from the rest; one that loses all
is listed no more. One object in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.dataset.merge import Fate, Merged
from draftmill.dataset.origin import DataRef, Versions, data_ref, row_versions
from draftmill.dataset.storage import ObjectRef, Storage
from draftmill.dataset.stored import sound_table
from draftmill.errors import DatasetError

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Standing:
    """An object before its rows are thinned out: which stay, and the version that brought each."""

    ref: ObjectRef
    stays: Mask
    versions: Versions


def standing(merged: Merged, old: Sequence[DataRef], new: Sequence[ObjectRef], *, version: int) -> dict[str, Standing]:
    """By path. `old`: the sealed objects, `new`: the change's, each in the order of the merged rows; `version`: the one
    that is being made."""
    versions = _versions(merged, old, version)
    stays = (merged.rows["fate"] == Fate.STAYS).to_numpy()
    found: dict[str, Standing] = {}
    for ref, rows in _slices([*old, *new], len(stays)):
        here = Standing(ref, stays[rows], versions[rows])
        if (twice := found.get(ref.path)) is not None:
            # The parent and the change name the same object: a row stays where either says so, as what it was there.
            here.versions = np.where(twice.stays, twice.versions, here.versions)
            here.stays = twice.stays | here.stays
        found[ref.path] = here
    return found


def put_standing(storage: Storage, folder: str, objects: Sequence[Standing]) -> list[DataRef]:
    """What stands of these objects, as objects. Raises DatasetError."""
    return [_put(storage, folder, found) for found in objects if found.stays.any()]


def _put(storage: Storage, folder: str, found: Standing) -> DataRef:
    if found.stays.all():
        return data_ref(found.ref, found.versions)
    table = sound_table(storage, found.ref).filter(pa.array(found.stays))
    return data_ref(storage.put_table(folder, table), found.versions[found.stays])


def _slices(refs: Sequence[ObjectRef], num_rows: int) -> Iterator[tuple[ObjectRef, slice]]:
    ends = np.cumsum([0, *(ref.rows for ref in refs)]).tolist()
    if ends[-1] != num_rows:
        raise DatasetError(
            "the objects of the dataset have other rows than the manifest says",
            value=f"{num_rows} rows",
            expected=f"{ends[-1]} rows",
            remedy="run `draftmill verify`, restore what it names, then run again",
        )
    for ref, start, end in zip(refs, ends, ends[1:], strict=False):
        yield ref, slice(start, end)


def _versions(merged: Merged, old: Sequence[DataRef], version: int) -> Versions:
    """The origin of each merged row: the parent's word for sealed ones, `version` for new ones. A row judged anew is
    brought again, and keeps the origin of the one that leaves for it."""
    sealed = np.concatenate([np.zeros(0, np.int32), *map(row_versions, old)])
    new = np.full(len(merged.rows) - len(sealed), version, np.int32)
    versions = np.concatenate([sealed, new])
    if merged.moved:
        rows = merged.rows[["row_key", "attempt", "new"]].assign(place=np.arange(len(versions)))
        left = rows[(merged.rows["fate"] == Fate.DROPPED) & ~rows["new"]]
        pairs = rows[rows["new"]].merge(left, on=["row_key", "attempt"], suffixes=("", "_left"))
        versions[pairs["place"]] = versions[pairs["place_left"]]
    return versions
