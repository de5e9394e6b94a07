"""What is missing: the planned rows against what the dataset has. Pure.

Each planned row lands in exactly one place: duplicate, kept, held, resumed or
to ask. Decided by row_key and attempt only; the order of the source and the
cutting into chunks change nothing but order.

A row cut by length below its present budget is asked again (attempt + 1), and
so is a held row whose newest reason is named in `again`; what is stored stays
until the new row is sealed. What any part of the dataset has, sealed once or
not, is brought back rather than asked: sampling that goes back to what it was
costs no request.

With `continuing` a row is asked on from its ids so far rather than anew: its
newest attempt, wherever that is; `continuing.taken_up`, which sees those ids, has
the last word. One that is in quarantine for anything but its length is held then:
no larger budget would make it good. What turns of conversations need beside is in
`plan_turns`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import pyarrow as pa

from draftmill.dataset import plan_turns
from draftmill.records import HistoryMode, Reason

CHUNKS_AT_MOST = 240
"""Chunks of an `auto` run: three tasks a chunk and the slices stay under about 1,000 task runs."""

CHUNK_ROWS_AT_LEAST = 256
"""Rows of an `auto` chunk: below that a task costs more than its rows."""

SLOT = ["prompt_key", "variant", "sample"]
"""Whose row it is: a stored row gives way to the row that is planned for its slot under another row_key."""

MISSING = pa.schema(
    [
        ("index", pa.int64()),  # of the planned row
        ("attempt", pa.int32()),
        ("resumed", pa.bool_()),
        ("part", pa.string()),  # the part that has its completion; null: to ask
        ("prior_attempt", pa.int32()),  # the attempt it is asked on from; null: from the start
        ("prior", pa.string()),  # the object that has that attempt
    ]
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run has to do.

    `missing`: MISSING, in source order. `duplicates`: planned index -> index of
    the first row of that row_key. `dropped`: (row_key, attempt) of the rows to
    leave out. `succession`: (row_key, attempt) of stored rows that nothing plans
    any more -> the row_key that is planned for their slot. Numbers are rows:
    `carried` the good ones whose prompt is gone or whose successor is held,
    `carried_bad` those in quarantine, `superseded` stored ones that leave for
    their successor, now or once it is in.
    """

    missing: pa.Table
    duplicates: dict[int, int]
    dropped: frozenset[tuple[str, int]]
    succession: dict[tuple[str, int], str]
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
    generated: pa.Table,
    *,
    removed: Literal["keep", "drop"],
    again: frozenset[str] = frozenset(),
    continuing: bool = False,
) -> Plan:
    """The plan for `planned` (ROW columns without ids), given STORED and GENERATED tables.

    `continuing`: rows cut by length are asked on; their budget is the total one.
    """
    rows = planned.select(["row_key", *SLOT, "max_new_tokens"]).to_pandas()
    kept_rows = stored.drop_columns(["object"]).to_pandas()
    first = pd.Series(rows.index, index=rows.index).groupby(rows["row_key"]).transform("first")
    is_first = first == rows.index
    wanted = _beside(_beside(rows[is_first], _summary(kept_rows)), _newest(generated.to_pandas()))
    known = wanted["top_attempt"].notna()
    good = wanted["good"].eq(True)
    cut_short = wanted["goes_on"].eq(True) if continuing else wanted["finish_reason"].eq("length")
    ask_again = known & cut_short & (wanted["top_budget"] < wanted["max_new_tokens"])
    ask_again |= known & ~good & wanted["reason"].isin(list(again))
    asked = wanted[~known | ask_again]
    missing = _missing(asked, stored["object"], continuing=continuing)
    blocked = _blocked(planned, wanted, missing, settled=good & wanted["finish_reason"].ne("length"))
    missing = missing[~missing["index"].isin(list(blocked))]
    ask_again &= ~wanted.index.isin(blocked)
    resumed = int(missing["resumed"].sum())
    gone, successors = _fates(kept_rows, rows)
    coming = [wanted.loc[missing["index"], "row_key"], kept_rows.loc[kept_rows["good"], "row_key"]]
    waiting = successors.notna() & kept_rows["good"] & ~is_in(successors, pd.concat(coming))
    leaving = kept_rows[gone & (removed == "drop")]
    carried = kept_rows[waiting | (gone & (removed == "keep"))]
    named = kept_rows[successors.notna()]
    return Plan(
        missing=pa.Table.from_pandas(missing, MISSING, preserve_index=False).replace_schema_metadata(None),
        duplicates={int(index): int(target) for index, target in first[~is_first].items()},
        dropped=frozenset(_requests(leaving)),
        succession=dict(zip(_requests(named), successors[named.index].tolist(), strict=True)),
        kept=int((known & good & ~ask_again).sum()),
        held=int((known & ~good & ~ask_again).sum()) + int((~known[list(blocked)]).sum()),
        carried=int(carried["good"].sum()),
        carried_bad=int((~carried["good"]).sum()),
        superseded=len(named) - int(waiting.sum()),
        resumed=resumed,
        to_ask=len(missing) - resumed,
    )


def _blocked(planned: pa.Table, wanted: pd.DataFrame, missing: pd.DataFrame, *, settled: pd.Series) -> list[int]:
    """Indices of missing rows that are turns which nothing can be asked for (`plan_turns.blocked`)."""
    turns = plan_turns.earlier_turns(planned, HistoryMode.REWRITES)
    if not turns:
        return []
    keys = wanted["row_key"]
    found = plan_turns.blocked(
        turns,
        missing=set(keys[missing["index"]]),
        resumed=set(keys[missing.loc[missing["resumed"], "index"]]),
        settled=set(keys[settled]),
    )
    return [index for index in missing["index"].tolist() if keys[index] in found]


def chunks(missing: pa.Table, chunk_rows: int, roots: Sequence[str] | None = None) -> list[pa.Table]:
    """Slices of at most `chunk_rows` rows, in source order; of about as many where `roots` must stay together."""
    if roots is not None:
        return plan_turns.together(missing, roots, chunk_rows)
    return [missing.slice(start, chunk_rows) for start in range(0, missing.num_rows, chunk_rows)]


def chunk_rows_auto(rows: int) -> int:
    """Rows of a chunk for `chunk_rows: auto`."""
    return max(CHUNK_ROWS_AT_LEAST, math.ceil(rows / CHUNKS_AT_MOST))


def is_in(column: pd.Series, values: pd.Series) -> pd.Series:
    """As `column.isin(values)`, which in pandas 3 takes five seconds a million strings; this a half."""
    known = set(values.tolist())
    return pd.Series([value in known for value in column.tolist()], index=column.index, dtype="bool")


def _requests(rows: pd.DataFrame) -> list[tuple[str, int]]:
    return list(zip(rows["row_key"].tolist(), rows["attempt"].tolist(), strict=True))


def _beside(rows: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """The rows with what is known by their row_key. Not a join: pandas 3 cannot join two empty string columns."""
    return pd.concat([rows, facts.reindex(rows["row_key"]).set_index(rows.index)], axis="columns")


def _summary(stored: pd.DataFrame) -> pd.DataFrame:
    """By row_key: the row that stands for it (its good one, else its newest), and what its attempts came to.

    `goes_on`: the newest was cut by length and is bad for nothing else; `place`: where that one is in `stored`.
    """
    ordered = stored.sort_values(["good", "attempt"], kind="stable")
    standing = ordered.drop_duplicates("row_key", keep="last").set_index("row_key")
    newest = stored.sort_values("attempt", kind="stable").drop_duplicates("row_key", keep="last")
    goes_on = newest["finish_reason"].eq("length") & (newest["good"] | newest["reason"].eq(Reason.TRUNCATED.value))
    tip = pd.DataFrame({"row_key": newest["row_key"], "goes_on": goes_on, "place": newest.index}).set_index("row_key")
    top = stored.groupby("row_key").agg(top_attempt=("attempt", "max"), top_budget=("max_new_tokens", "max"))
    return standing[["good", "finish_reason", "reason"]].join(tip).join(top)


def _newest(generated: pd.DataFrame) -> pd.DataFrame:
    """By row_key: its newest completion, in the first part that has it, as `read_completions` takes it."""
    ordered = generated.sort_values(["attempt", "part"], ascending=[False, True], kind="stable")
    newest = ordered.drop_duplicates("row_key").set_index("row_key")
    return newest[["attempt", "finish_type", "max_new_tokens", "part"]].add_prefix("newest_")


def _missing(wanted: pd.DataFrame, objects: pa.ChunkedArray, *, continuing: bool) -> pd.DataFrame:
    """The newest attempt beyond those stored is resumed, unless it was cut at a smaller budget: then the next.

    `objects`: of the stored rows, the object each lies in.
    """
    cut_short = wanted["newest_finish_type"].eq("length")
    cut_short &= wanted["newest_max_new_tokens"] < wanted["max_new_tokens"]
    stored_attempt, newest_attempt = wanted["top_attempt"].fillna(-1), wanted["newest_attempt"].fillna(-1)
    resumed = (newest_attempt > stored_attempt) & ~cut_short
    last = newest_attempt.where(newest_attempt > stored_attempt, stored_attempt).astype("int32")
    from_part = ~resumed & (newest_attempt > stored_attempt) & continuing
    from_stored = (newest_attempt <= stored_attempt) & wanted["goes_on"].eq(True) & continuing
    from_stored &= wanted["top_budget"] < wanted["max_new_tokens"]
    prior = wanted["newest_part"].where(from_part)
    prior[from_stored] = objects.take(pa.array(wanted.loc[from_stored, "place"], pa.int64())).to_pylist()
    return pd.DataFrame(
        {
            "index": wanted.index,
            "attempt": last + (~resumed).astype("int32"),
            "resumed": resumed,
            "part": wanted["newest_part"].where(resumed),
            "prior_attempt": last.astype("Int32").where(from_part | from_stored),
            "prior": prior,
        }
    )


def _fates(stored: pd.DataFrame, planned: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Per stored row: whether its prompt is gone; the row_key planned for its slot, null for all that are planned."""
    unplanned = ~is_in(stored["row_key"], planned["row_key"])
    slots = planned[[*SLOT, "row_key"]].drop_duplicates()
    found = stored.loc[unplanned, SLOT].reset_index().merge(slots, on=SLOT)
    # Of several row_keys in one slot (a template that reads the clock) any will do, but always the same.
    successor = found.sort_values("row_key").drop_duplicates("index").set_index("index")["row_key"]
    successors = successor.reindex(stored.index)
    return unplanned & successors.isna(), successors
