"""Rows of several variants judged together, each by its own variant's structure; verdicts in the rows' order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.arrays import Ids, flatten
from draftmill.dataset.schema import column_ids
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Verdict

BATCH_IDS = 16_000_000
"""Ids of spans judged at once: each span is judged with a copy of all ids before it, 64 MB in all."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a recipe says about judging."""

    on_truncated: str
    degenerate: Literal["auto", "off"] | int


@dataclass(frozen=True, slots=True)
class Judged:
    """`verdicts`: one a row, None for a row whose variant has no structure. `single_echo`: see `judge.Verdicts`."""

    verdicts: list[Verdict | None]
    single_echo: int

    @property
    def known(self) -> list[Verdict]:
        """All verdicts; that a row has none is a programmer's error here."""
        verdicts = [verdict for verdict in self.verdicts if verdict is not None]
        assert len(verdicts) == len(self.verdicts), "a row of a variant that has no structure"
        return verdicts

    @property
    def reasons(self) -> dict[str, int]:
        """Bad rows by reason, sorted."""
        found = Counter(str(v.reason) for v in self.verdicts if v is not None and v.reason is not None)
        return dict(sorted(found.items()))


def judge_completions(
    completions: Sequence[Completion], structures: Mapping[str, Structure], rules: Rules
) -> list[Verdict]:
    """Fresh completions' verdicts. Every variant must have a structure: another is a programmer's error."""
    return judged_completions(completions, structures, rules).known


def judged_completions(completions: Sequence[Completion], structures: Mapping[str, Structure], rules: Rules) -> Judged:
    """As `judge_completions`, with what is only counted."""
    names = [completion.row.variant for completion in completions]
    return _judged(names, lambda rows: Answers.of_completions([completions[b] for b in rows]), structures, rules)


def judged_table(table: pa.Table, structures: Mapping[str, Structure], rules: Rules) -> Judged:
    """Stored rows (SHARD or QUARANTINE columns); each span of a row is judged, and the first bad one names the row."""
    if pc.all(pc.equal(pc.list_value_length(table["spans"]), 1)).as_py() is not False:
        return _judged_rows(table, structures, rules)
    batches = [_judged_spans(rows, structures, rules) for rows in _batches(table)]
    return Judged(
        [verdict for judged in batches for verdict in judged.verdicts], sum(judged.single_echo for judged in batches)
    )


def _judged_rows(table: pa.Table, structures: Mapping[str, Structure], rules: Rules) -> Judged:
    names = table["variant"].to_pylist()

    def answers_of(rows: list[int]) -> Answers:
        return Answers.of_shard(table if len(rows) == len(names) else table.take(pa.array(rows, pa.int64())))

    return _judged(names, answers_of, structures, rules)


def _judged_spans(table: pa.Table, structures: Mapping[str, Structure], rules: Rules) -> Judged:
    judged = _judged_rows(turns_of(table), structures, rules)
    of_turns = iter(judged.verdicts)
    num_spans_B = pc.list_value_length(table["spans"]).to_pylist()
    return Judged([_of_row([next(of_turns) for _ in range(number)]) for number in num_spans_B], judged.single_echo)


def _batches(table: pa.Table) -> Iterator[pa.Table]:
    """Slices whose spans, each with all ids before it, hold at most BATCH_IDS ids together; one row at least."""
    start, ids = 0, 0
    for b, spans in enumerate(table["spans"].to_pylist()):
        of_row = sum(span["end"] for span in spans)
        if b > start and ids + of_row > BATCH_IDS:
            yield table.slice(start, b - start)
            start, ids = b, 0
        ids += of_row
    if start < table.num_rows:
        yield table.slice(start)


def turns_of(table: pa.Table) -> pa.Table:
    """Stored rows span by span, each as if it were a row: all ids before it are its prompt."""
    rows = table.select(["variant", "max_new_tokens", "spans"]).to_pylist()
    spans = [(b, row, span) for b, row in enumerate(rows) for span in row["spans"]]
    ids_B = column_ids(table["input_ids"])
    flat, offsets = flatten(_known(ids_B[b])[: span["end"]] for b, _, span in spans)
    return pa.table(
        {
            "variant": pa.array([row["variant"] for _, row, _ in spans], pa.string()),
            "input_ids": pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat)),
            "prompt_len": pa.array([span["start"] for _, _, span in spans], pa.int32()),
            "max_new_tokens": pa.array([row["max_new_tokens"] for _, row, _ in spans], pa.int32()),
            "finish_reason": pa.array([span["finish_reason"] for _, _, span in spans], pa.string()),
            "stop_id": pa.array([span["stop_id"] for _, _, span in spans], pa.int32()),
        }
    )


def _known(ids: Ids | None) -> Ids:
    assert ids is not None, "a row without ids"
    return ids


def _of_row(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """The verdict on a row of these spans: the first bad one's reason, the last one's end."""
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    named = next((verdict for verdict in known if verdict.reason is not None), known[-1])
    return replace(named, reasoning_end=known[-1].reasoning_end, stop_id=known[-1].stop_id, earlier=tuple(known[:-1]))


def _judged(
    names: Sequence[str],
    answers_of: Callable[[list[int]], Answers],
    structures: Mapping[str, Structure],
    rules: Rules,
) -> Judged:
    rows_of: dict[str, list[int]] = defaultdict(list)
    for b, name in enumerate(names):
        rows_of[name].append(b)
    verdicts: list[Verdict | None] = [None] * len(names)
    single_echo = 0
    for name, rows in rows_of.items():
        if name not in structures:
            continue
        found = judge(answers_of(rows), structures[name], on_truncated=rules.on_truncated, degenerate=rules.degenerate)
        single_echo += int(found.single_echo_B.sum())
        for b, verdict in zip(rows, found, strict=True):
            verdicts[b] = verdict
    return Judged(verdicts, single_echo)
