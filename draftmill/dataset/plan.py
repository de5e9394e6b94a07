"""What is missing: the planned rows against what the dataset has. Pure.

Each planned row lands in exactly one place: duplicate, kept, held, resumed or
to ask. Decided by row_key and attempt only; the order of the source and the
cutting into chunks change nothing but order.

A row cut by length below its present budget is asked again (attempt + 1), and
so is a held row whose newest reason is named in `again`; what is stored stays
until the new row is sealed. What any part of the dataset has, sealed once or
not, is brought back rather than asked: sampling that goes back to what it was
costs no request, and an attempt that a run finished and did not seal is not lost,
though the row's reason is no longer named. Stored rows that nothing plans: `fates`.

With `continuing` a row is asked on from its ids so far rather than anew: its
newest attempt, wherever that is; `continuing.taken_up`, which sees those ids, has
the last word. One that is in quarantine for anything but its length is held then:
no larger budget would make it good. What turns of conversations need beside is in
`plan_turns`.

Keys are compared as numbers (`numbers`): text or dictionary columns come in, and what
comes out has the columns it came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from draftmill.dataset import plan_turns
from draftmill.dataset.fates import among, fates
from draftmill.dataset.numbers import numbered
from draftmill.dataset.stored import REQUESTS
from draftmill.records import HistoryMode, Reason

CHUNKS_AT_MOST = 240
"""Chunks of a run: three tasks a chunk and those of the slices stay under about 1,000 task runs."""

CHUNK_ROWS_AT_LEAST = 256
"""Rows of an `auto` chunk: below that a task costs more than its rows."""

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

SUCCESSION = pa.schema([*REQUESTS, ("successor", pa.string())])
"""A stored row that nothing plans any more, and the row_key that is planned for its slot."""


class Kind(StrEnum):
    """Why a row is missing."""

    NEW = "new"  # the dataset has nothing of its prompt
    SAMPLES = "samples"  # it has the prompt in this variant, not this sample
    CHANGED = "changed"  # it has a row under another row_key in its slot
    LONGER = "longer"  # it was cut by length, at a smaller budget
    AGAIN = "again"  # its reason is named in `again`, or was, by a run that finished it and did not seal


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run has to do.

    `missing`: MISSING, in source order. `kinds`: its rows by kind. `duplicates`: planned
    index -> index of the first row of that row_key. `dropped`: REQUESTS, the rows to
    leave out. `succession`: SUCCESSION. Numbers are rows: `carried` the good ones that
    stay though nothing plans them, or whose successor is held, `carried_bad` those in
    quarantine, `superseded` stored ones that leave for their successor, now or once it
    is in, `removed` the good ones whose prompt is gone, kept or dropped, `spared` those
    whose prompt is there, rejected or with fewer samples; `held_reasons` the held ones
    that are in quarantine, by the reason that stands.
    """

    missing: pa.Table
    kinds: Mapping[Kind, int]
    duplicates: dict[int, int]
    dropped: pa.Table
    succession: pa.Table
    kept: int
    held: int
    held_reasons: Mapping[str, int]
    carried: int
    carried_bad: int
    superseded: int
    removed: int
    spared: int
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
    rejected: pa.Array | None = None,
) -> Plan:
    """The plan for `planned` (ROW columns without ids), given STORED and GENERATED tables.

    `continuing`: rows cut by length are asked on; their budget is the total one. `rejected`: the prompt_keys of
    prompts that are in the source and cannot be sent.
    """
    rows, kept_rows, made = _frames(planned, stored, generated)
    first = pd.Series(rows.index, index=rows.index).groupby(rows["row_key"]).transform("first")
    is_first = first == rows.index
    wanted = _beside(_beside(rows[is_first], _summary(kept_rows)), _newest(made))
    known = wanted["top_attempt"].notna()
    good = wanted["good"].eq(True)
    cut_short = wanted["goes_on"].eq(True) if continuing else wanted["finish_reason"].eq("length")
    longer = known & cut_short & (wanted["top_budget"] < wanted["max_new_tokens"])
    finished = _finished(wanted) & ~longer
    ask_again = longer | (known & ~good & (wanted["reason"].isin(list(again)) | finished))
    missing = _missing(wanted[~known | ask_again], stored["object"], continuing=continuing)
    blocked = _blocked(planned, wanted, missing, settled=good & wanted["finish_reason"].ne("length"))
    missing = missing[~missing["index"].isin(blocked)]
    ask_again &= ~wanted.index.isin(blocked)
    held = known & ~good & ~ask_again
    resumed = int(missing["resumed"].sum())
    gone, spared, successors = fates(
        kept_rows, rows, names=planned["row_key"], refused=among(stored["prompt_key"], rejected)
    )
    coming = [wanted.loc[missing["index"], "row_key"], kept_rows.loc[kept_rows["good"], "row_key"]]
    followed = successors.notna()
    waiting = followed & kept_rows["good"] & ~rows["row_key"].reindex(successors).isin(pd.concat(coming)).to_numpy()
    carried = kept_rows["good"][waiting | spared | (gone & (removed == "keep"))]
    requests = stored.select(REQUESTS.names)
    return Plan(
        missing=pa.Table.from_pandas(missing, MISSING, preserve_index=False).replace_schema_metadata(None),
        kinds=_kinds(wanted.loc[missing["index"]], kept_rows, known=known, longer=longer),
        duplicates=dict(zip(first.index[~is_first].tolist(), first[~is_first].tolist(), strict=True)),
        dropped=requests.filter(pa.array(gone & (removed == "drop"), pa.bool_())),
        succession=requests.filter(pa.array(followed, pa.bool_())).append_column(
            "successor", planned["row_key"].take(pa.array(successors[followed], pa.int64()))
        ),
        kept=int((known & good & ~ask_again).sum()),
        held=int(held.sum()) + int((~known[blocked]).sum()),
        held_reasons={str(reason): int(n) for reason, n in wanted.loc[held, "reason"].value_counts().items() if n},
        carried=int(carried.sum()),
        carried_bad=int((~carried).sum()),
        superseded=int(followed.sum() - waiting.sum()),
        removed=int((gone & kept_rows["good"]).sum()),
        spared=int((spared & kept_rows["good"]).sum()),
        resumed=resumed,
        to_ask=len(missing) - resumed,
    )


def _frames(
    planned: pa.Table, stored: pa.Table, generated: pa.Table
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The three tables with numbers for keys.

    `slot`: whose row it is (prompt, variant and sample): a stored row gives way to the row that is planned for its
    slot under another row_key. `asked_as`: the same without the sample.
    """
    row_keys = numbered(planned["row_key"], stored["row_key"], generated["row_key"])
    prompts, variants = (numbered(planned[name], stored[name]) for name in ("prompt_key", "variant"))
    samples = [table["sample"].to_numpy() for table in (planned, stored)]
    num_variants, num_samples = (1 + max(int(column.max(initial=0)) for column in pair) for pair in (variants, samples))
    frames = []
    facts = (["max_new_tokens"], ["attempt", "finish_reason", "max_new_tokens", "good", "reason"])
    for number, (table, columns) in enumerate(zip((planned, stored), facts, strict=True)):
        frame = table.select(columns).to_pandas()
        frame["row_key"] = row_keys[number]
        frame["asked_as"] = prompts[number].astype(np.int64) * num_variants + variants[number]
        frame["slot"] = frame["asked_as"] * num_samples + samples[number]
        frames.append(frame)
    made = generated.select(["attempt", "finish_type", "max_new_tokens", "part"]).to_pandas()
    made["row_key"] = row_keys[2]
    return frames[0], frames[1], made


def _blocked(planned: pa.Table, wanted: pd.DataFrame, missing: pd.DataFrame, *, settled: pd.Series) -> list[int]:
    """Indices of missing rows that are turns which nothing can be asked for (`plan_turns.blocked`)."""
    turns = plan_turns.earlier_turns(planned, HistoryMode.REWRITES)
    if not turns:
        return []
    keys = pd.Series(planned["row_key"].take(pa.array(wanted.index)).to_pylist(), index=wanted.index, dtype="object")
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


def rows_of_a_chunk(rows: int, chosen: Literal["auto"] | int) -> int:
    """Rows of a chunk, for a recipe's `chunk_rows`; as many more as CHUNKS_AT_MOST of them need."""
    return max(CHUNK_ROWS_AT_LEAST if chosen == "auto" else chosen, math.ceil(rows / CHUNKS_AT_MOST))


def _beside(rows: pd.DataFrame, facts: pd.DataFrame) -> pd.DataFrame:
    """The rows with what is known by their row_key."""
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
    part = generated["part"].astype("category")
    by_name = part.cat.set_categories(part.cat.categories.sort_values())
    ordered = generated.assign(part=by_name).sort_values(["attempt", "part"], ascending=[False, True], kind="stable")
    newest = ordered.drop_duplicates("row_key").set_index("row_key")
    return newest.add_prefix("newest_")


def _finished(wanted: pd.DataFrame) -> pd.Series:
    """Which rows have a completion beyond the attempts stored that is not cut at a smaller budget than theirs."""
    cut_short = wanted["newest_finish_type"].eq("length")
    cut_short &= wanted["newest_max_new_tokens"] < wanted["max_new_tokens"]
    return (wanted["newest_attempt"].fillna(-1) > wanted["top_attempt"].fillna(-1)) & ~cut_short


def _missing(wanted: pd.DataFrame, objects: pa.ChunkedArray, *, continuing: bool) -> pd.DataFrame:
    """The newest attempt beyond those stored is resumed, unless it was cut at a smaller budget: then the next.

    `objects`: of the stored rows, the object each lies in.
    """
    resumed = _finished(wanted)
    stored_attempt, newest_attempt = wanted["top_attempt"].fillna(-1), wanted["newest_attempt"].fillna(-1)
    last = newest_attempt.where(newest_attempt > stored_attempt, stored_attempt).astype("int32")
    from_part = ~resumed & (newest_attempt > stored_attempt) & continuing
    from_stored = (newest_attempt <= stored_attempt) & wanted["goes_on"].eq(True) & continuing
    from_stored &= wanted["top_budget"] < wanted["max_new_tokens"]
    prior = wanted["newest_part"].where(from_part).astype("object")
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


def _kinds(missing: pd.DataFrame, stored: pd.DataFrame, *, known: pd.Series, longer: pd.Series) -> dict[Kind, int]:
    """The missing rows by kind. `known`, `longer`: of the planned rows."""
    is_known, is_longer = known[missing.index], longer[missing.index]
    changed = ~is_known & missing["slot"].isin(stored["slot"])
    samples = ~is_known & ~changed & missing["asked_as"].isin(stored["asked_as"])
    new = ~is_known & ~changed & ~samples
    masks = (new, samples, changed, is_longer, is_known & ~is_longer)
    return {kind: int(mask.sum()) for kind, mask in zip(Kind, masks, strict=True)}
