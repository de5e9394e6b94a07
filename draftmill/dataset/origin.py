"""Which version brought a row: what a manifest says of each of its data objects.

A row is made by the run that first seals its (row_key, attempt), and that
version's manifest says how: recipe, identity, structures, provenance. The row
keeps its origin wherever it goes: judged anew, moved between shards and
quarantine, written anew without its neighbours, compacted. So `made` of an
object is, in the order of its rows, (version, how many rows in a row).

Pure; refuses runs that do not add up to the object's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from draftmill.dataset.storage import ObjectRef
from draftmill.errors import DatasetError, RecipeError

if TYPE_CHECKING:
    from draftmill.dataset.manifest import Manifest

Versions = npt.NDArray[np.int32]
"""A manifest's version for each of some rows."""


class Made(BaseModel):
    """`rows` rows in a row that version `manifest` brought."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: int = Field(ge=1)
    rows: int = Field(ge=1)


class DataRef(ObjectRef):
    """A shard or quarantine object, and which versions brought its rows."""

    made: list[Made]


def data_ref(ref: ObjectRef, versions: Sequence[int] | Versions) -> DataRef:
    """The object with the origins of its rows, one version a row."""
    found = np.asarray(versions, np.int32)
    assert len(found) == ref.rows, f"{len(found)} origins for {ref.rows} rows"
    starts = np.flatnonzero(np.diff(found, prepend=found[:1] - 1))
    lengths = np.diff(starts, append=len(found))
    made = [
        Made(manifest=version, rows=rows)
        for version, rows in zip(found[starts].tolist(), lengths.tolist(), strict=True)
    ]
    return DataRef(path=ref.path, bytes=ref.bytes, rows=ref.rows, sha256=ref.sha256, made=made)


def row_versions(ref: DataRef) -> Versions:
    """The origins of an object's rows, one version a row. Raises DatasetError when `made` does not add up."""
    if (total := sum(run.rows for run in ref.made)) != ref.rows:
        raise DatasetError(
            f"the manifest does not say of every row of {ref.path} where it comes from",
            value=f"`made` of {total} rows",
            expected=f"{ref.rows} rows",
            remedy="restore the manifest from a copy",
        )
    versions = np.array([run.manifest for run in ref.made], np.int32)
    return versions.repeat([run.rows for run in ref.made])


def origin(manifest: Manifest, path: str, index: int) -> int:
    """The version that brought row `index` of an object. Raises RecipeError when the manifest lists no such row."""
    for ref in (*manifest.shards, *manifest.quarantine):
        if ref.path == path and 0 <= index < ref.rows:
            return int(row_versions(ref)[index])
    raise RecipeError(
        "no such row in the dataset",
        value=f"row {index} of {path}",
        expected=f"a row of a shard or quarantine object that version {manifest.version} lists",
        remedy="name another",
    )
