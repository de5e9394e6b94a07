"""What contradicts itself within stored rows: lengths, spans, the end of the reasoning, the stop id.

Looks at columns as arrays, never at one row after the other: a shard may hold
millions of ids. A good row must hold together in full; a quarantined one only as
far as any answer does (its spans lie inside its ids, and it has a reason).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from draftmill.records import Reason

REQUIRED = (
    *("row_key", "prompt_key", "prompt_id", "variant", "sample", "attempt", "input_ids", "prompt_len", "spans"),
    *("max_new_tokens", "finish_reason", "engine", "source", "created_at"),
)
"""Columns that are never null."""

NOWHERE = -1
"""Stands for null among indices and ids, both of which begin at 0."""

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def row_faults(table: pa.Table, *, good: bool) -> list[str]:
    """The faults of a SHARD table (`good`) or a QUARANTINE table, each with how many rows and the first row_key."""
    nulls = [name for name in REQUIRED if table.column(name).null_count]
    nulls += [name for name in ("reason",) if not good and table.column(name).null_count]
    if pc.list_flatten(table.column("input_ids")).null_count:
        nulls.append("ids in input_ids")
    if nulls or table.num_rows == 0:
        return [f"null where a value must be: {', '.join(nulls)}"] if nulls else ["no rows"]
    keys = table.column("row_key")
    faults = []
    for what, mask in _checks(table.combine_chunks(), good):
        if mask.any():
            faults.append(f"{int(mask.sum())} rows: {what}, first {keys[int(mask.argmax())]}")
    return faults


def _checks(table: pa.Table, good: bool) -> Iterator[tuple[str, Mask]]:
    spans = _Spans.of(table)
    prompt_len_B = _ints(table.column("prompt_len"))
    yield "no span", spans.num_B == 0
    yield "prompt_len outside input_ids", (prompt_len_B < 0) | (prompt_len_B > spans.length_B)
    yield from _places(spans, prompt_len_B)
    yield from _last_span(spans, table)
    if good:
        yield from _good_spans(spans, table)
    else:
        known = pa.array([reason.value for reason in Reason])
        yield "an unknown reason", ~_bools(pc.is_in(table.column("reason"), value_set=known))


@dataclass(frozen=True, slots=True)
class _Spans:
    """All spans of a table, flat. `S`: spans; `row_S`: whose row a span is; `length_B`: ids of a row."""

    num_B: Ints
    length_B: Ints
    row_S: Ints
    first_S: Mask
    last_S: Mask
    start_S: Ints
    end_S: Ints
    reasoning_end_S: Ints
    stop_id_S: Ints
    finish_reason_S: Any

    @classmethod
    def of(cls, table: pa.Table) -> _Spans:
        num_B = _ints(pc.list_value_length(table.column("spans")))
        row_S = np.repeat(np.arange(table.num_rows), num_B)
        flat = pc.list_flatten(table.column("spans"))
        return cls(
            num_B=num_B,
            length_B=_ints(pc.list_value_length(table.column("input_ids"))),
            row_S=row_S,
            first_S=np.diff(row_S, prepend=NOWHERE) != 0,
            last_S=np.diff(row_S, append=table.num_rows) != 0,
            start_S=_ints(pc.struct_field(flat, "start")),
            end_S=_ints(pc.struct_field(flat, "end")),
            reasoning_end_S=_ints(pc.struct_field(flat, "reasoning_end")),
            stop_id_S=_ints(pc.struct_field(flat, "stop_id")),
            finish_reason_S=pc.struct_field(flat, "finish_reason"),
        )

    @property
    def inside_S(self) -> Mask:
        return (self.start_S >= 0) & (self.start_S <= self.end_S) & (self.end_S <= self.length_B[self.row_S])

    def rows(self, mask_S: Mask) -> Mask:
        """The rows that have a span in the mask."""
        mask_B = np.zeros(len(self.num_B), np.bool_)
        mask_B[self.row_S[mask_S]] = True
        return mask_B


def _places(spans: _Spans, prompt_len_B: Ints) -> Iterator[tuple[str, Mask]]:
    yield "a span outside input_ids", spans.rows(~spans.inside_S)
    late_S = spans.first_S & (spans.start_S != prompt_len_B[spans.row_S])
    yield "the first span does not begin at prompt_len", spans.rows(late_S)
    early_S = spans.last_S & (spans.end_S != spans.length_B[spans.row_S])
    yield "the last span does not end with input_ids", spans.rows(early_S)
    before_S = np.roll(spans.end_S, 1)  # of a row's first span: another row's, not looked at
    yield "spans that overlap", spans.rows(~spans.first_S & (spans.start_S < before_S))


def _last_span(spans: _Spans, table: pa.Table) -> Iterator[tuple[str, Mask]]:
    for name, value_S in (("reasoning_end", spans.reasoning_end_S), ("stop_id", spans.stop_id_S)):
        other_S = value_S != _ints(table.column(name))[spans.row_S]
        yield f"{name} is not its last span's", spans.rows(spans.last_S & other_S)
    differs = pc.not_equal(spans.finish_reason_S, table.column("finish_reason").take(pa.array(spans.row_S)))
    yield "finish_reason is not its last span's", spans.rows(spans.last_S & _bools(pc.fill_null(differs, True)))


def _good_spans(spans: _Spans, table: pa.Table) -> Iterator[tuple[str, Mask]]:
    yield "an empty span", spans.rows(spans.start_S == spans.end_S)
    within_S = (spans.start_S <= spans.reasoning_end_S) & (spans.reasoning_end_S < spans.end_S)
    yield "reasoning_end outside its span", spans.rows((spans.reasoning_end_S != NOWHERE) & ~within_S)
    known = pc.is_in(table.column("finish_reason"), value_set=pa.array(["stop", "length"]))
    yield "finish_reason neither stop nor length", ~_bools(known)
    ids = table.column("input_ids").chunk(0)
    end_in_flat_S = ids.offsets.to_numpy()[spans.row_S].astype(np.int64) + spans.end_S
    to_check_S = spans.inside_S & (spans.end_S > spans.start_S) & (spans.stop_id_S != NOWHERE)
    wrong_S = np.zeros(len(to_check_S), np.bool_)
    ended_by_S = ids.values.to_numpy()[end_in_flat_S[to_check_S] - 1]
    wrong_S[to_check_S] = ended_by_S != spans.stop_id_S[to_check_S]
    yield "stop_id is not the id that its span ends with", spans.rows(wrong_S)


def _ints(column: Any) -> Ints:
    values: Ints = pc.fill_null(column, NOWHERE).to_numpy().astype(np.int64)
    return values


def _bools(column: Any) -> Mask:
    values: Mask = column.to_numpy().astype(np.bool_)
    return values
