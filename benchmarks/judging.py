"""Is judging ever the bottleneck? The judge against pyarrow writing the same ids.

    python benchmarks/judging.py                 1,000 rows of 4,096 ids, fifteen alternations
    python benchmarks/judging.py --repeats 3     a first look

A row is written once, so what takes less time than writing it holds nothing up.
Both work on the same flat array in one process and in turn, so that both meet the
same weather; a ratio is taken inside an alternation. The table goes to stdout and,
with command and machine, into `results/<day>-judging.md`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.machine import command_line, head
from draftmill.arrays import Ids
from draftmill.dataset.storage import ROW_GROUP_ROWS
from draftmill.judging.answers import LENGTH, NOT_GIVEN, STOP, Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Channels, Structure
from draftmill.records import Thinking

RESULTS = Path(__file__).parent / "results"

ORDINARY = 151_643
"""Ids of words; those of markers lie above, as in Qwen3's vocabulary."""

PROMPT_IDS = 256
OPEN, CLOSE, END, CHANNEL, MESSAGE, START, ASSISTANT, ANALYSIS, FINAL = range(ORDINARY, ORDINARY + 9)

BLOCK = Structure(
    name="think",
    thinking=Thinking.OPENED_BY_PROMPT,
    open_ids=(OPEN,),
    close_ids=(CLOSE,),
    end_ids=(END,),
    foreign_ids=(START,),
    tail_ids=(START, ASSISTANT, OPEN),
    blank_ids=(3, 20, 50),
    highest_id=ORDINARY + 300,
    evidence=(),
)
MESSAGES = Structure(
    name="channels",
    thinking=Thinking.OPENED_BY_MODEL,
    open_ids=(CHANNEL, ANALYSIS, MESSAGE),
    close_ids=(CLOSE,),
    end_ids=(END,),
    foreign_ids=(),
    tail_ids=(START, ASSISTANT),
    blank_ids=(3, 20, 50),
    highest_id=ORDINARY + 300,
    evidence=(),
    channels=Channels((START, ASSISTANT), CHANNEL, MESSAGE, ((ANALYSIS,),), ((FINAL,),)),
)


@dataclass(frozen=True, slots=True)
class Case:
    """Answers of one structure, all well formed unless they are loops."""

    says: str
    structure: Structure
    answers: Answers


def main() -> None:
    given = _parser().parse_args()
    cases = [
        Case("one block of reasoning", BLOCK, answers(blocks(given.rows, given.ids))),
        Case("messages on channels", MESSAGES, answers(messages(given.rows, given.ids))),
        Case("every answer a loop with a counter", BLOCK, answers(loops(given.rows, given.ids))),
    ]
    day = dt.date.today().isoformat()
    text = head(
        command_line(),
        f"The judge against writing the same ids, {day}",
        notes=[f"{given.rows:,} rows of {given.ids:,} ids, {PROMPT_IDS} of them the prompt's; one thread each"],
        packages=("numpy", "pyarrow"),
    )
    text += "\n| answers | judging, ms | writing as zstd Parquet, ms | judging / writing | good rows |\n"
    text += "| --- | ---: | ---: | ---: | ---: |\n"
    text += "".join(measured(case, given.repeats) for case in cases)
    out = given.out or RESULTS / f"{day}-judging.md"
    out.write_text(text, encoding="utf-8")
    print(text)


def measured(case: Case, repeats: int) -> str:
    """Both in turn, `repeats` times after one that warms up: a line of the table."""
    pairs = []
    good = 0
    for number in range(repeats + 1):
        turns: list[Callable[[], int]] = [lambda: judged(case), lambda: written(case)]
        order = (0, 1) if number % 2 else (1, 0)
        took = [0.0, 0.0]
        for which in order:
            began = time.perf_counter()
            result = turns[which]()
            took[which] = 1000 * (time.perf_counter() - began)
            good = result if which == 0 else good
        pairs.append((took[0], took[1], took[0] / took[1]))
    cells = [_spread([pair[column] for pair in pairs[1:]], digits) for column, digits in ((0, 1), (1, 1), (2, 2))]
    return f"| {case.says} | {' | '.join(cells)} | {good:,} |\n"


def judged(case: Case) -> int:
    return int(judge(case.answers, case.structure, on_truncated="keep", degenerate="auto").ok_B.sum())


def written(case: Case) -> int:
    """As a shard's `input_ids` are written, into memory: no disk is waited for."""
    rows = case.answers
    lists = pa.ListArray.from_arrays(pa.array(rows.offsets_B1, pa.int32()), pa.array(rows.ids_T))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"input_ids": lists}), sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    return int(sink.getvalue().size)


def words(rows: int, ids: int, *, seed: int = 1) -> Ids:
    """Ids as frequent as words are, by Zipf's law: the n-th most frequent one's share is as 1 / n. [B, T]."""
    up_to = np.cumsum(1 / np.arange(1, ORDINARY + 1))
    drawn = np.random.default_rng(seed).random((rows, ids)) * up_to[-1]
    ids_BT: Ids = np.searchsorted(up_to, drawn).astype(np.int32)
    return ids_BT


def blocks(rows: int, ids: int) -> Ids:
    ids_BT = words(rows, ids)
    ids_BT[:, PROMPT_IDS - 1], ids_BT[:, ids // 2], ids_BT[:, -1] = OPEN, CLOSE, END
    return ids_BT


def messages(rows: int, ids: int) -> Ids:
    ids_BT = words(rows, ids)
    between = (CLOSE, START, ASSISTANT, CHANNEL, FINAL, MESSAGE)
    ids_BT[:, PROMPT_IDS - 2 : PROMPT_IDS + 3] = (START, ASSISTANT, CHANNEL, ANALYSIS, MESSAGE)
    ids_BT[:, ids // 2 : ids // 2 + len(between)] = between
    ids_BT[:, -1] = END
    return ids_BT


def loops(rows: int, ids: int) -> Ids:
    """From the middle on a sentence of 24 ids, its second one a counter, up to the budget: nothing is spared."""
    ids_BT = blocks(rows, ids)
    place = np.arange(ids - ids // 2 - 1)
    sentence = np.where(place % 24 == 1, 1000 + place // 24, 100 + place % 24)
    ids_BT[:, ids // 2 + 1 :] = sentence
    return ids_BT


def answers(ids_BT: Ids) -> Answers:
    """As a well-behaved server gave them: what does not end in an end id was cut by its budget."""
    rows, ids = ids_BT.shape
    stopped_B = ids_BT[:, -1] == END
    none_B = np.full(rows, NOT_GIVEN, np.int64)
    return Answers(
        ids_T=ids_BT.reshape(-1),
        offsets_B1=np.arange(rows + 1, dtype=np.int64) * ids,
        prompt_len_B=np.full(rows, PROMPT_IDS, np.int64),
        max_new_tokens_B=np.full(rows, ids, np.int64),
        finish_type_B=np.where(stopped_B, STOP, LENGTH),
        finish_length_B=none_B,
        matched_id_B=np.where(stopped_B, END, NOT_GIVEN),
        matched_text_B=np.full(rows, ""),
        echo_equal_B=np.ones(rows, np.bool_),
        prompt_tokens_B=np.full(rows, PROMPT_IDS, np.int64),
        completion_tokens_B=np.full(rows, ids - PROMPT_IDS, np.int64),
    )


def _spread(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/judging.py", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--ids", type=int, default=4096, help="of a row, its prompt's included")
    parser.add_argument("--repeats", type=int, default=15, metavar="N", help="alternations; default 15")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: results/<day>-judging.md")
    return parser


if __name__ == "__main__":
    main()
