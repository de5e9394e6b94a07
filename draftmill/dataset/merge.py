"""Which rows stand when new rows meet sealed ones. Pure, on keys.

- A request (row_key, attempt) that is sealed already stays as sealed; ours leaves.
- A row judged anew, that is one which the change drops and brings again, takes the
  sealed one's place; where another run has removed that one meanwhile it leaves too.
- Per row_key: of good attempts the newest stays; of all attempts a bad one stays
  only while it is the newest. So a good row outlives a newer bad attempt, which
  stands beside it in quarantine.
- A sealed row with a successor (see Plan) leaves when a row of the successor's
  row_key stays: a good row only for a good one. So a bad newcomer never removes
  a good row; and it is the same on whichever manifest the change meets.

Keys are compared as numbers (`numbers`), and so is a request: a row_key and an attempt.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from draftmill.dataset.numbers import Numbers, numbered

NEEDED = ["row_key", "attempt", "good", "reason", "object"]
"""The columns of STORED that decide."""

MAX_ATTEMPTS = 1 << 31
"""Attempts are int32: a row_key's number times this and an attempt are one int64."""


class Fate(StrEnum):
    """What becomes of a row."""

    STAYS = "stays"
    DROPPED = "dropped"
    GONE = "gone"
    SEALED_BEFORE = "sealed_before"
    SUPERSEDED = "superseded"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Merged:
    """`rows`: sealed rows, then new ones, in order: `row_key` (a number), `attempt`, `request`, `good`, `reason`,
    `object`, `new`, `fate`. `moved`: requests that the change drops and brings again (judged anew).
    """

    rows: pd.DataFrame
    moved: int

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
        return (new["fate"] == Fate.STAYS) & ~new["row_key"].isin(known)

    @property
    def reasons(self) -> Counter[str]:
        """The quarantined rows that stay, by reason."""
        staying = _staying(self.rows)
        counts = staying.loc[~staying["good"], "reason"].value_counts()
        return Counter({str(reason): int(n) for reason, n in counts.items() if n})

    @property
    def attempts(self) -> dict[int, int]:
        """Good rows that stay, by attempt."""
        staying = _staying(self.rows)
        return {int(attempt): int(n) for attempt, n in staying.loc[staying["good"], "attempt"].value_counts().items()}


def merge(sealed: pa.Table, new: pa.Table, *, dropped: pa.Table, succession: pa.Table) -> Merged:
    """The fate of every row of two tables with the columns NEEDED. `dropped`: REQUESTS; `succession`: SUCCESSION."""
    columns = (sealed["row_key"], new["row_key"], dropped["row_key"], succession["row_key"], succession["successor"])
    sealed_keys, new_keys, dropped_keys, left_keys, heir_keys = numbered(*columns)
    rows = pa.concat_tables([table.select(NEEDED[1:]) for table in (sealed, new)]).unify_dictionaries().to_pandas()
    rows["row_key"] = np.concatenate([sealed_keys, new_keys])
    rows["request"] = _requests(rows["row_key"].to_numpy(), rows["attempt"].to_numpy())
    rows["new"] = np.arange(len(rows)) >= sealed.num_rows
    rows["fate"] = pd.Categorical.from_codes(np.zeros(len(rows), np.int8), pd.Index([fate.value for fate in Fate]))
    named = rows["request"].isin(_requests(dropped_keys, dropped["attempt"].to_numpy()))
    rows.loc[named & ~rows["new"], "fate"] = Fate.DROPPED.value
    _mark(rows, named & rows["new"] & ~rows["request"].isin(rows.loc[~rows["new"], "request"]), Fate.GONE)
    moved = int((rows["new"] & rows["request"].isin(rows.loc[rows["fate"] == Fate.DROPPED, "request"])).sum())
    _mark(rows, _staying(rows)["request"].duplicated(), Fate.SEALED_BEFORE)
    _mark(rows, _replaced(_staying(rows)), Fate.REPLACED)
    if succession.num_rows:
        heirs = pd.Series(heir_keys, index=_requests(left_keys, succession["attempt"].to_numpy()))
        _mark(rows, _superseded(_staying(rows), heirs), Fate.SUPERSEDED)
    return Merged(rows=rows, moved=moved)


def _requests(row_keys: Numbers, attempts: Numbers) -> npt.NDArray[np.int64]:
    return row_keys.astype(np.int64) * MAX_ATTEMPTS + attempts


def _staying(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["fate"] == Fate.STAYS]


def _mark(rows: pd.DataFrame, mask: pd.Series, fate: Fate) -> None:
    rows.loc[mask[mask].index, "fate"] = fate.value


def _replaced(rows: pd.DataFrame) -> pd.Series:
    newest = rows.groupby("row_key")["attempt"].transform("max")
    newest_good = rows["attempt"].where(rows["good"]).groupby(rows["row_key"]).transform("max")
    return (rows["good"] & (rows["attempt"] < newest_good)) | (~rows["good"] & (rows["attempt"] < newest))


def _superseded(rows: pd.DataFrame, heirs: pd.Series) -> pd.Series:
    """`heirs`: by request the row_key that follows it."""
    successor = heirs.reindex(rows["request"]).set_axis(rows.index)
    named = successor.notna() & ~rows["new"]
    # What leaves itself is nobody's successor: a circle would else remove all of its rows.
    staying = rows[~named]
    for_any = successor.isin(staying["row_key"])
    for_good = successor.isin(staying.loc[staying["good"], "row_key"])
    return named & for_any & (for_good | ~rows["good"])
