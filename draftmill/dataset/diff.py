"""What changed between two versions of a dataset, in rows: read from their keys alone.

A row is a row_key. It stands as good when one of its attempts is good, else as
its newest attempt's reason. The numbers close: rows of the new version = rows
of the old - removed - superseded + added. A row that left is superseded when
its place (prompt, variant, sample) has a row under another key in the new
version, else removed. `moved`: rows of both versions that stand otherwise now;
`asked_again`: those that stand the same, by a newer attempt.

Refuses, by name, versions whose objects are gone: `gc` removes what no recent
version needs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from draftmill.dataset.manifest import Manifest, read_manifest, versions
from draftmill.dataset.numbers import numbered
from draftmill.dataset.status import existing
from draftmill.dataset.storage import Storage
from draftmill.dataset.stored import listed_table, stored_keys
from draftmill.errors import DatasetError, RecipeError

GOOD = "good"
"""How a good row stands; a bad one stands by its reason code."""

SLOT = ["prompt_key", "variant", "sample"]

COLUMNS = ["row_key", *SLOT, "attempt", "good", "reason"]

Counts = dict[str, int]
"""Rows by how they stand: `good`, or a reason code."""


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """In row_keys. `old`, `new`: all rows of each version. `moved`: (stood, stands) -> rows. `rejected`: prompts that
    could not be sent, by reason, in each version."""

    old: Counts
    new: Counts
    added: Counts
    removed: Counts
    superseded: Counts
    moved: dict[tuple[str, str], int]
    asked_again: int
    rejected: tuple[Counts, Counts]


def pair(storage: Storage, old: int | None, new: int | None) -> tuple[Manifest, Manifest]:
    """The two versions to compare: those named, else the newest and the one before it. Raises RecipeError."""
    existing(storage)
    known = versions(storage)
    if len(known) == 1:
        raise RecipeError(
            "there is only one manifest, and nothing to compare it with",
            value=f"manifest {known[0]} of {storage.url}",
            expected="two manifests",
            remedy="see it with `draftmill status`; the next run that changes the dataset makes the second",
        )
    after = new if new is not None else known[-1]
    before = old if old is not None else after - 1
    if not {before, after} <= set(known) or before == after:
        raise RecipeError(
            "there are no two such manifests to compare",
            value=f"manifests {before} and {after}",
            expected=f"two of the {len(known)} there are: {known[0]} to {known[-1]}",
            remedy="name others; a dataset has as many as runs that changed it",
        )
    return read_manifest(storage, before), read_manifest(storage, after)


def diff_rows(storage: Storage, old: Manifest, new: Manifest) -> RowsChanged:
    """Compare two versions' rows. Raises DatasetError, also when an object of either is gone."""
    before, after = map(_standing, _comparable(_keys(storage, old), _keys(storage, new)))
    both = before.add_suffix("_old").join(after.add_suffix("_new"), how="inner")
    left = before[~before.index.isin(after.index)]
    came = after[~after.index.isin(before.index)]
    succeeded = left["slot"].isin(after["slot"])
    moved = both[both["stands_old"] != both["stands_new"]]
    same = both[both["stands_old"] == both["stands_new"]]
    return RowsChanged(
        old=_counts(before),
        new=_counts(after),
        added=_counts(came),
        removed=_counts(left[~succeeded]),
        superseded=_counts(left[succeeded]),
        moved=dict(sorted(Counter(zip(moved["stands_old"], moved["stands_new"], strict=True)).items())),
        asked_again=int((same["attempt_old"] != same["attempt_new"]).sum()),
        rejected=(_rejected(storage, old), _rejected(storage, new)),
    )


def _comparable(*tables: pa.Table) -> list[pd.DataFrame]:
    """Keys as small numbers, the same for the same text in all tables: text is slow to compare a million times."""
    by_column = [numbered(*(table[name] for table in tables)) for name in ("row_key", "prompt_key", "variant")]
    frames = []
    for table, row_key, prompt_key, variant in zip(tables, *by_column, strict=True):
        columns = {name: table[name].to_numpy() for name in ("sample", "attempt", "good")}
        reason = table["reason"].cast(pa.string()).to_pandas()
        frames.append(pd.DataFrame({"row_key": row_key, "prompt_key": prompt_key, "variant": variant, **columns}))
        frames[-1]["stands"] = reason.where(~frames[-1]["good"], GOOD)
    slots = pd.concat(frames).groupby(SLOT, sort=False).ngroup().to_numpy()
    ends = np.cumsum([len(frame) for frame in frames])
    return [frame.assign(slot=part) for frame, part in zip(frames, np.split(slots, ends[:-1]), strict=True)]


def _standing(rows: pd.DataFrame) -> pd.DataFrame:
    """By row_key: its slot, its standing attempt, and how it stands."""
    ordered = rows.sort_values(["good", "attempt"], kind="stable")
    return ordered.drop_duplicates("row_key", keep="last").set_index("row_key")[["slot", "attempt", "stands"]]


def _keys(storage: Storage, manifest: Manifest) -> pa.Table:
    try:
        return stored_keys(storage, manifest, COLUMNS)
    except DatasetError as error:
        raise _of_version(manifest, error) from error


def _rejected(storage: Storage, manifest: Manifest) -> Counts:
    counts: dict[str, int] = {}
    for ref in manifest.rejected:
        try:
            reasons = listed_table(storage, ref.path, ["reason"])["reason"].to_pylist()
        except DatasetError as error:
            raise _of_version(manifest, error) from error
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items()))


def _of_version(manifest: Manifest, error: DatasetError) -> DatasetError:
    return DatasetError(
        f"manifest {manifest.version} cannot be compared: {error.what}",
        value=error.value,
        expected=error.expected,
        remedy="compare newer manifests: `draftmill gc --delete` removes what only old ones list; if no gc ran, "
        "restore the object from a copy",
    )


def _counts(rows: pd.DataFrame) -> Counts:
    return {str(stands): int(number) for stands, number in rows["stands"].value_counts(sort=False).sort_index().items()}
