"""Which rows stand when new rows meet sealed ones. Pure, on keys.

Per slot (prompt_key, variant, sample) and row_key:

- a request (row_key, attempt) that is sealed already stays as sealed; ours leaves;
- a new row under another row_key supersedes the sealed rows of its slot;
- of good attempts the newest stays; of all attempts a bad one stays only while
  it is the newest. So a good row outlives a newer bad attempt, which stands
  beside it in quarantine.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
import pyarrow as pa

from draftmill.dataset.plan import SLOT


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
    change drops and brings again (judged anew)."""

    rows: pd.DataFrame
    moved: int

    def count(self, fate: Fate) -> int:
        return int((self.rows["fate"] == fate).sum())


def merge(
    sealed: pa.Table, new: pa.Table, *, dropped: Collection[tuple[str, int]], protected: Collection[str]
) -> Merged:
    """The fate of every row of two STORED tables."""
    rows = pa.concat_tables([sealed, new]).to_pandas()
    rows["new"] = np.arange(len(rows)) >= sealed.num_rows
    rows["fate"] = Fate.STAYS.value
    key = pd.MultiIndex.from_frame(rows[["row_key", "attempt"]])
    named = key.isin(list(dropped)) if dropped else pd.Series(False, index=rows.index).to_numpy()
    rows.loc[named & ~rows["new"], "fate"] = Fate.DROPPED.value
    moved = int(key[rows["new"]].isin(key[rows["fate"] == Fate.DROPPED]).sum())
    _mark(rows, _staying(rows).duplicated(["row_key", "attempt"]), Fate.SEALED_BEFORE)
    _mark(rows, _superseded(_staying(rows), protected), Fate.SUPERSEDED)
    _mark(rows, _replaced(_staying(rows)), Fate.REPLACED)
    return Merged(rows=rows, moved=moved)


def _staying(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["fate"] == Fate.STAYS]


def _mark(rows: pd.DataFrame, mask: pd.Series, fate: Fate) -> None:
    rows.loc[mask[mask].index, "fate"] = fate.value


def _superseded(rows: pd.DataFrame, protected: Collection[str]) -> pd.Series:
    newcomers = rows[rows["new"]]
    slots = pd.MultiIndex.from_frame(rows[SLOT])
    owned = pd.MultiIndex.from_frame(rows[[*SLOT, "row_key"]])
    taken = slots.isin(pd.MultiIndex.from_frame(newcomers[SLOT]))
    own = owned.isin(pd.MultiIndex.from_frame(newcomers[[*SLOT, "row_key"]]))
    return ~rows["new"] & taken & ~own & ~rows["row_key"].isin(list(protected))


def _replaced(rows: pd.DataFrame) -> pd.Series:
    newest = rows.groupby("row_key")["attempt"].transform("max")
    newest_good = rows["attempt"].where(rows["good"].astype(bool)).groupby(rows["row_key"]).transform("max")
    good = rows["good"].astype(bool)
    return (good & (rows["attempt"] < newest_good)) | (~good & (rows["attempt"] < newest))
