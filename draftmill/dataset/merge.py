"""Which rows stand when new rows meet sealed ones. Pure, on keys.

- A request (row_key, attempt) that is sealed already stays as sealed; ours leaves.
- Per row_key: of good attempts the newest stays; of all attempts a bad one stays
  only while it is the newest. So a good row outlives a newer bad attempt, which
  stands beside it in quarantine.
- A sealed row with a successor (see Plan) leaves when a row of the successor's
  row_key stays: a good row only for a good one. So a bad newcomer never removes
  a good row; and it is the same on whichever manifest the change meets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
import pyarrow as pa

from draftmill.dataset.plan import is_in

REQUEST = ["row_key", "attempt"]


class Fate(StrEnum):
    """What becomes of a row."""

    STAYS = "stays"
    DROPPED = "dropped"
    SEALED_BEFORE = "sealed_before"
    SUPERSEDED = "superseded"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Merged:
    """`rows`: sealed rows, then new ones, in order, with `new`, `good`, `object` and `fate`. `moved`: keys that the
    change drops and brings again (judged anew). `sealed_before`: see Tally."""

    rows: pd.DataFrame
    moved: int
    sealed_before: Counter[tuple[bool, bool]]

    def count(self, fate: Fate) -> int:
        return int((self.rows["fate"] == fate).sum())

    @property
    def held(self) -> int:
        """Row_keys of which no good row stays, only quarantined ones."""
        staying = _staying(self.rows)
        return int(staying["row_key"].nunique() - staying.loc[staying["good"], "row_key"].nunique())

    @property
    def fresh(self) -> pd.Series:
        """Of the new rows, in their order: those that stay and whose row_key no sealed row had."""
        known = self.rows.loc[~self.rows["new"], "row_key"]
        new = self.rows[self.rows["new"]]
        return (new["fate"] == Fate.STAYS) & ~is_in(new["row_key"], known)

    @property
    def reasons(self) -> Counter[str]:
        """The quarantined rows that stay, by reason."""
        staying = _staying(self.rows)
        return Counter(staying.loc[~staying["good"], "reason"])

    @property
    def attempts(self) -> dict[int, int]:
        """Good rows that stay, by attempt."""
        staying = _staying(self.rows)
        return {int(attempt): int(n) for attempt, n in staying.loc[staying["good"], "attempt"].value_counts().items()}


def merge(
    sealed: pa.Table,
    new: pa.Table,
    *,
    dropped: Collection[tuple[str, int]],
    succession: Mapping[tuple[str, int], str],
) -> Merged:
    """The fate of every row of two STORED tables."""
    rows = pa.concat_tables([sealed, new]).to_pandas()
    rows["new"] = np.arange(len(rows)) >= sealed.num_rows
    rows["fate"] = Fate.STAYS.value
    key = pd.MultiIndex.from_frame(rows[REQUEST])
    named = key.isin(list(dropped)) if dropped else pd.Series(False, index=rows.index).to_numpy()
    rows.loc[named & ~rows["new"], "fate"] = Fate.DROPPED.value
    moved = int(key[rows["new"]].isin(key[rows["fate"] == Fate.DROPPED]).sum())
    sealed_before = _sealed_before(_staying(rows))
    _mark(rows, _staying(rows).duplicated(REQUEST), Fate.SEALED_BEFORE)
    _mark(rows, _replaced(_staying(rows)), Fate.REPLACED)
    if succession:
        _mark(rows, _superseded(_staying(rows), succession), Fate.SUPERSEDED)
    return Merged(rows=rows, moved=moved, sealed_before=sealed_before)


def _staying(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["fate"] == Fate.STAYS]


def _mark(rows: pd.DataFrame, mask: pd.Series, fate: Fate) -> None:
    rows.loc[mask[mask].index, "fate"] = fate.value


def _sealed_before(rows: pd.DataFrame) -> Counter[tuple[bool, bool]]:
    """Of the requests that are there twice: (the second is good, the first is good) -> how many."""
    twice = rows[rows.duplicated(REQUEST)]
    first = rows.drop_duplicates(REQUEST).set_index(REQUEST)["good"]
    return Counter(zip(twice["good"].tolist(), first[pd.MultiIndex.from_frame(twice[REQUEST])].tolist(), strict=True))


def _replaced(rows: pd.DataFrame) -> pd.Series:
    newest = rows.groupby("row_key")["attempt"].transform("max")
    newest_good = rows["attempt"].where(rows["good"]).groupby(rows["row_key"]).transform("max")
    return (rows["good"] & (rows["attempt"] < newest_good)) | (~rows["good"] & (rows["attempt"] < newest))


def _superseded(rows: pd.DataFrame, succession: Mapping[tuple[str, int], str]) -> pd.Series:
    requests = zip(rows["row_key"].tolist(), rows["attempt"].tolist(), strict=True)
    successor = pd.Series([succession.get(request) for request in requests], index=rows.index, dtype="str")
    named = successor.notna() & ~rows["new"]
    # What leaves itself is nobody's successor: a circle would else remove all of its rows.
    heirs = rows[~named]
    for_any = is_in(successor, heirs["row_key"])
    for_good = is_in(successor, heirs.loc[heirs["good"], "row_key"])
    return named & for_any & (for_good | ~rows["good"])
