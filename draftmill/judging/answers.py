"""Answers as flat arrays: what `judge` reads, from completions or from stored rows.

All ids of all rows lie in one array, prompt and output of a row side by side, as
in a shard's `input_ids`; offsets tell the rows apart. Axes: `B` rows, `B1` =
B + 1 offsets. A stored row no longer shows the exchange with the server (echo,
counts): those facts were judged when it was fresh and count as fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from draftmill.arrays import ID_DTYPE, OFFSET_DTYPE, Ids, Offsets, flatten
from draftmill.records import Completion

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.str_]

STOP, LENGTH = "stop", "length"
"""The two ways in which an answer may end; all others are aborts."""

NOT_GIVEN = -1
"""Stands for a number the server did not give."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Row b is `ids_T[offsets_B1[b]:offsets_B1[b + 1]]`, of which the first `prompt_len_B[b]` are the prompt's."""

    ids_T: Ids
    offsets_B1: Offsets
    prompt_len_B: Numbers
    max_new_tokens_B: Numbers
    finish_type_B: Words
    finish_length_B: Numbers
    matched_id_B: Numbers
    matched_text_B: Words
    echo_equal_B: Flags
    prompt_tokens_B: Numbers
    completion_tokens_B: Numbers

    def __len__(self) -> int:
        return len(self.prompt_len_B)

    @property
    def starts_B(self) -> Offsets:
        """Where each row's output begins in `ids_T`."""
        return self.offsets_B1[:-1] + self.prompt_len_B

    @property
    def ends_B(self) -> Offsets:
        """Where each row ends in `ids_T`."""
        return self.offsets_B1[1:]

    @property
    def output_len_B(self) -> Numbers:
        return self.ends_B - self.starts_B

    def row(self, b: int) -> Ids:
        """Row b's prompt and output ids, a view."""
        return self.ids_T[self.offsets_B1[b] : self.offsets_B1[b + 1]]

    @classmethod
    def of_completions(cls, completions: Sequence[Completion]) -> Answers:
        """Fresh completions, with all that the server said about them."""
        rows = [completion.row for completion in completions]
        answers = [completion.answer for completion in completions]
        ids_T, offsets = flatten([part for c in completions for part in (c.row.prompt_ids, c.answer.output_ids)])
        matched = [answer.matched for answer in answers]
        return cls(
            ids_T=ids_T,
            offsets_B1=offsets[::2],
            prompt_len_B=np.diff(offsets)[::2],
            max_new_tokens_B=_numbers([row.max_new_tokens for row in rows]),
            finish_type_B=_words([answer.finish_type for answer in answers]),
            finish_length_B=_numbers([answer.finish_length for answer in answers]),
            matched_id_B=_numbers([item if isinstance(item, int) else None for item in matched]),
            matched_text_B=_words([item if isinstance(item, str) else "" for item in matched]),
            echo_equal_B=np.array([answer.echo_ids is None for answer in answers], np.bool_),
            prompt_tokens_B=_numbers([answer.prompt_tokens for answer in answers]),
            completion_tokens_B=_numbers([answer.completion_tokens for answer in answers]),
        )

    @classmethod
    def of_shard(cls, table: pa.Table) -> Answers:
        """Rows of a SHARD or QUARANTINE table; the ids are views of its column when it is one piece."""
        ids_T, offsets_B1 = _list_column(table, "input_ids")
        none_B = np.full(table.num_rows, NOT_GIVEN, np.int64)
        return cls(
            ids_T=ids_T,
            offsets_B1=offsets_B1,
            prompt_len_B=_number_column(table, "prompt_len"),
            max_new_tokens_B=_number_column(table, "max_new_tokens"),
            finish_type_B=_word_column(table, "finish_reason"),
            finish_length_B=none_B,
            matched_id_B=_number_column(table, "stop_id"),
            matched_text_B=_words([""] * table.num_rows),
            echo_equal_B=np.ones(table.num_rows, np.bool_),
            prompt_tokens_B=none_B,
            completion_tokens_B=none_B,
        )


def _list_column(table: pa.Table, name: str) -> tuple[Ids, Offsets]:
    column = table.column(name)
    pieces = [(chunk.flatten().to_numpy(), np.diff(chunk.offsets.to_numpy())) for chunk in column.chunks]
    lengths_B = np.concatenate([lengths for _, lengths in pieces]) if pieces else np.zeros(0, OFFSET_DTYPE)
    offsets_B1 = np.zeros(len(lengths_B) + 1, OFFSET_DTYPE)
    np.cumsum(lengths_B, out=offsets_B1[1:])
    if len(pieces) == 1:
        return pieces[0][0], offsets_B1
    return np.concatenate([ids for ids, _ in pieces]) if pieces else np.zeros(0, ID_DTYPE), offsets_B1


def _number_column(table: pa.Table, name: str) -> Numbers:
    return _numbers(table.column(name).to_pylist())


def _word_column(table: pa.Table, name: str) -> Words:
    return _words([word or "" for word in table.column(name).to_pylist()])


def _numbers(values: Sequence[int | None]) -> Numbers:
    return np.array([NOT_GIVEN if value is None else value for value in values], np.int64)


def _words(values: Sequence[str]) -> Words:
    return np.array(values, np.str_)
