"""Completions and their verdicts as the rows a dataset keeps: good ones, bad ones.

`input_ids` are the prompt's ids and the output's ids joined, as sent and as
returned; nothing is decoded. Turns generated before the last one lie inside the
prompt's ids, as spans. A row is in exactly one of the two tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from draftmill.arrays import flatten
from draftmill.dataset.schema import QUARANTINE, SHARD
from draftmill.errors import RecipeError
from draftmill.records import Completion, Verdict

MOST_IDS = int(np.iinfo(np.int32).max)
"""Ids that input_ids, a list<int32> column with 32-bit offsets, can hold in one table."""


def dataset_rows(completions: Sequence[Completion], verdicts: Sequence[Verdict]) -> tuple[pa.Table, pa.Table]:
    """(good rows as SHARD, bad rows as QUARANTINE), each in the order given."""
    pairs = list(zip(completions, verdicts, strict=True))
    good = [(completion, verdict) for completion, verdict in pairs if verdict.reason is None]
    bad = [(completion, verdict) for completion, verdict in pairs if verdict.reason is not None]
    return _table(good, SHARD), _table(bad, QUARANTINE)


def _table(pairs: Sequence[tuple[Completion, Verdict]], schema: pa.Schema) -> pa.Table:
    records = [_record(completion, verdict) for completion, verdict in pairs]
    columns: dict[str, Any] = {
        field.name: pa.array([record[field.name] for record in records], field.type)
        for field in schema
        if field.name != "input_ids"
    }
    flat, offsets_B1 = flatten(np.concatenate([c.row.prompt_ids, c.answer.output_ids]) for c, _ in pairs)
    if len(flat) > MOST_IDS:
        raise RecipeError(
            "a chunk is too large for one Parquet column",
            value=f"{len(flat)} ids in {len(pairs)} rows",
            expected=f"at most {MOST_IDS} ids",
            remedy="lower chunk_rows and run again: nothing is asked anew",
        )
    columns["input_ids"] = pa.ListArray.from_arrays(pa.array(offsets_B1.astype(np.int32)), pa.array(flat))
    return pa.table(columns, schema=schema)


def _record(completion: Completion, verdict: Verdict) -> dict[str, Any]:
    row, answer = completion.row, completion.answer
    start = len(row.prompt_ids)
    ended = {
        "reasoning_end": verdict.reasoning_end,
        "finish_reason": answer.finish_type,
        "stop_id": verdict.stop_id,
    }
    return {
        "row_key": row.row_key,
        "prompt_key": row.prompt_key,
        "prompt_id": row.prompt_id,
        "variant": row.variant,
        "sample": row.sample,
        "attempt": row.attempt,
        "prompt_len": row.spans[0].start if row.spans else start,
        "spans": [*map(asdict, row.spans), {"start": start, "end": start + len(answer.output_ids), **ended}],
        **ended,
        "max_new_tokens": _granted(completion),
        "engine": answer.engine,
        "weight_version": answer.weight_version,
        "messages": row.messages,
        "source": row.source,
        "created_at": answer.created_at,
        "reason": verdict.reason and str(verdict.reason),
        "detail": verdict.detail,
    }


def _granted(completion: Completion) -> int:
    """The budget asked for, or what the server granted of it: a row cut by length fills its place only up to that.

    A turn that had all the room of its context counts as having had its budget.
    """
    asked, answer, room = completion.row.max_new_tokens, completion.answer, completion.row.room
    if room is not None and len(answer.output_ids) >= room:
        return asked
    if answer.finish_type == "length" and answer.finish_length is not None:
        return min(asked, answer.finish_length)
    return asked
