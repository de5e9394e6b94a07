"""What is missing: the planned rows against what the dataset has. Pure.

Each planned row lands in exactly one place: duplicate, kept, held, resumed or
to ask. Decided by row_key and attempt only; the order of the source and the
cutting into chunks change nothing but order.

A row cut by length below its present budget is asked again (attempt + 1), and
so is a held row whose newest reason is named in `again`; what is stored stays
until the new row is sealed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import pyarrow as pa

CHUNKS_AT_MOST = 240
"""Chunks of an `auto` run: four tasks a chunk stay under about 1,000 task runs."""

CHUNK_ROWS_AT_LEAST = 256
"""Rows of an `auto` chunk: below that a task costs more than its rows."""

SLOT = ["prompt_key", "variant", "sample"]
"""Whose row it is: of several rows of a slot under different row_keys the newest supersedes the others."""

MISSING = pa.schema(
    [
        ("index", pa.int64()),  # of the planned row
        ("attempt", pa.int32()),
        ("resumed", pa.bool_()),
        ("part", pa.string()),  # the part that has its completion; null: to ask
    ]
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run has to do.

    `missing`: MISSING, in source order. `duplicates`: planned index -> index of
    the first row of that row_key. `dropped`: (row_key, attempt) of the rows to
    leave out. `protected`: row_keys planned under another slot than they are
    stored in, which therefore nothing supersedes. Numbers are rows: `carried`
    the good ones whose prompt is gone, `carried_bad` those in quarantine,
    `superseded` stored ones that leave once their successor is in.
    """

    missing: pa.Table
    duplicates: dict[int, int]
    dropped: frozenset[tuple[str, int]]
    protected: frozenset[str]
    kept: int
    held: int
    carried: int
    carried_bad: int
    superseded: int
    resumed: int
    to_ask: int


def make_plan(
    planned: pa.Table,
    stored: pa.Table,
    unfinished: pa.Table,
    *,
    removed: Literal["keep", "drop"],
    again: frozenset[str] = frozenset(),
) -> Plan:
    """The plan for `planned` (ROW columns without ids), given STORED and UNFINISHED tables."""
    rows = planned.select(["row_key", *SLOT, "max_new_tokens"]).to_pandas()
    kept_rows = stored.drop_columns(["object"]).to_pandas()
    first = pd.Series(rows.index, index=rows.index).groupby(rows["row_key"]).transform("first")
    is_first = first == rows.index
    wanted = rows[is_first]
    # Not a join: pandas 3 cannot join two empty string columns.
    known_facts = _summary(kept_rows).reindex(wanted["row_key"]).set_index(wanted.index)
    wanted = pd.concat([wanted, known_facts], axis="columns")
    known = wanted["top_attempt"].notna()
    good = wanted["good"].eq(True)
    ask_again = known & wanted["finish_reason"].eq("length") & (wanted["top_budget"] < wanted["max_new_tokens"])
    ask_again |= known & ~good & wanted["reason"].isin(list(again))
    attempt = (wanted["top_attempt"] + 1).fillna(0).astype("int32")
    missing = _missing(wanted.assign(attempt=attempt)[~known | ask_again], unfinished)
    resumed = int(missing["resumed"].sum())
    gone, superseded, protected = _fates(kept_rows, rows)
    leaving = kept_rows[gone] if removed == "drop" else kept_rows.iloc[:0]
    carried = kept_rows[gone] if removed == "keep" else kept_rows.iloc[:0]
    return Plan(
        missing=pa.Table.from_pandas(missing, MISSING, preserve_index=False).replace_schema_metadata(None),
        duplicates={int(index): int(target) for index, target in first[~is_first].items()},
        dropped=frozenset(zip(leaving["row_key"], leaving["attempt"].tolist(), strict=True)),
        protected=frozenset(kept_rows["row_key"][protected]),
        kept=int((known & good & ~ask_again).sum()),
        held=int((known & ~good & ~ask_again).sum()),
        carried=int(carried["good"].sum()),
        carried_bad=int((~carried["good"].astype(bool)).sum()),
        superseded=int(superseded.sum()),
        resumed=resumed,
        to_ask=len(missing) - resumed,
    )


def chunks(missing: pa.Table, chunk_rows: int) -> list[pa.Table]:
    """Slices of at most `chunk_rows` rows, in source order."""
    return [missing.slice(start, chunk_rows) for start in range(0, missing.num_rows, chunk_rows)]


def chunk_rows_auto(rows: int) -> int:
    """Rows of a chunk for `chunk_rows: auto`."""
    return max(CHUNK_ROWS_AT_LEAST, math.ceil(rows / CHUNKS_AT_MOST))


def _summary(stored: pd.DataFrame) -> pd.DataFrame:
    """By row_key: the row that stands for it (its good one, else its newest), its top attempt and budget."""
    ordered = stored.sort_values(["good", "attempt"], kind="stable")
    standing = ordered.drop_duplicates("row_key", keep="last").set_index("row_key")
    top = stored.groupby("row_key").agg(top_attempt=("attempt", "max"), top_budget=("max_new_tokens", "max"))
    return standing[["good", "finish_reason", "reason"]].join(top)


def _missing(wanted: pd.DataFrame, unfinished: pa.Table) -> pd.DataFrame:
    parts = unfinished.to_pandas().sort_values("part", kind="stable").drop_duplicates(["row_key", "attempt"])
    index = wanted.index
    joined = wanted[["row_key", "attempt"]].merge(parts, how="left", on=["row_key", "attempt"])
    return pd.DataFrame(
        {"index": index, "attempt": joined["attempt"], "resumed": joined["part"].notna(), "part": joined["part"]}
    )


def _fates(stored: pd.DataFrame, planned: pd.DataFrame) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Masks over the stored rows: prompt gone, superseded, protected."""
    slots = planned[SLOT].drop_duplicates()
    in_slot = stored[SLOT].merge(slots, how="left", on=SLOT, indicator=True)["_merge"].eq("both")
    own = planned[["row_key", *SLOT]].drop_duplicates()
    as_planned = stored[["row_key", *SLOT]].merge(own, how="left", indicator=True)["_merge"].eq("both")
    by_key = stored["row_key"].isin(planned["row_key"])
    return ~in_slot & ~by_key, in_slot & ~by_key, in_slot & by_key & ~as_planned
