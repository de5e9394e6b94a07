"""The sixteen ways in which an answer is wrong, one function each.

Every rule is pure: answers, structure and the places of the markers in, and
`Found` out: which rows break it, and where. No rule knows of another; which one
names the row is the order of `records.Reason`, kept by `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from draftmill.judging.answers import LENGTH, NOT_GIVEN, STOP, Answers, Flags, Numbers
from draftmill.judging.course import Course
from draftmill.judging.loops import AUTO_BOUND, long_cycle_starts, short_cycle_starts
from draftmill.judging.markers import NOWHERE, Markers, first_not_blank, grammar_ids, stands_at
from draftmill.judging.phrases import repetition_starts
from draftmill.judging.structure import Form, Marker, Structure, stands
from draftmill.records import Reason

NAN_MATCHED = "NaN happened"
"""SGLang's `matched` when the logits were NaN (0.5.23): a value of its protocol."""

LONGEST_ECHO = 16
"""Ids of the prompt's tail compared with the answer's start; up to 5 were seen (SGLang 0.5.1.post3 to 0.5.4.post1)."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule may look at."""

    answers: Answers
    structure: Structure
    markers: Markers
    course: Course
    on_truncated: str
    degenerate: Literal["auto", "off"] | int

    @property
    def stopped_B(self) -> Flags:
        return np.asarray(self.answers.finish_type_B == STOP)

    @property
    def body_ends_B(self) -> Numbers:
        """Where each row's output ends, but for the id that ends the turn."""
        return self.answers.ends_B - self.markers.last_is_end_B

    @property
    def cut_B(self) -> Flags:
        return np.asarray(self.answers.finish_type_B == LENGTH)


@dataclass(frozen=True, slots=True)
class Found:
    """`bad_B`: rows that break the rule. `at_B`: where, as index into `ids_T`; NOWHERE when no place is to blame."""

    bad_B: Flags
    at_B: Numbers


Rule = Callable[[Case], Found]


def _nowhere(bad_B: Flags) -> Found:
    return Found(bad_B, np.full(len(bad_B), NOWHERE, np.int64))


def _at(at_B: Numbers) -> Found:
    return Found(at_B != NOWHERE, at_B)


def aborted(case: Case) -> Found:
    """Ended neither by itself nor by its budget."""
    return _nowhere(~(case.stopped_B | case.cut_B))


def corrupted(case: Case) -> Found:
    """The server met NaN."""
    return _nowhere(case.answers.matched_text_B == NAN_MATCHED)


def prompt_mismatch(case: Case) -> Found:
    """The server used other prompt ids, or fewer."""
    return _nowhere(~case.answers.echo_equal_B | _differs(case.answers.prompt_tokens_B, case.answers.prompt_len_B))


def count_mismatch(case: Case) -> Found:
    """The server counted other ids than came, or more came than were asked for."""
    answers, num_B = case.answers, case.answers.output_len_B
    return _nowhere(
        _differs(answers.completion_tokens_B, num_B)
        | (num_B > answers.max_new_tokens_B)
        | (case.cut_B & _differs(answers.finish_length_B, num_B))
    )


def _differs(given_B: Numbers, wanted_B: Numbers) -> Flags:
    return np.asarray((given_B != NOT_GIVEN) & (given_B != wanted_B))


def id_out_of_range(case: Case) -> Found:
    """An id no tokenizer of this model has."""
    return _at(case.markers.unknown.nth(0))


def empty_output(case: Case) -> Found:
    """No ids at all."""
    return _nowhere(case.answers.output_len_B == 0)


def prompt_echo(case: Case) -> Found:
    """Two or more ids of the prompt's tail again at the start, or one of the markers in it."""
    answers, structure = case.answers, case.structure
    tails_BK, heads_BK = echo_windows(answers)
    bad_B = np.zeros(len(answers), np.bool_)
    for k in range(2, LONGEST_ECHO + 1):
        bad_B |= (tails_BK[:, -k:] == heads_BK[:, :k]).all(axis=1)
    rows = np.arange(len(answers))
    for marker in _of_tail(structure):
        bad_B |= stands_at(answers, marker, answers.starts_B, rows)
    return Found(bad_B, np.where(bad_B, answers.starts_B, NOWHERE))


def _of_tail(structure: Structure) -> list[Marker]:
    """The markers that stand in the prompt's tail, as they stand there."""
    tail = structure.tail_ids
    ids = sorted({*structure.foreign_ids, *grammar_ids(structure)} & set(tail))
    forms: set[Form] = {*structure.opens, *structure.closes, *((index,) for index in ids)}
    pieces = ((form, tail[at : at + len(form)]) for form in forms for at in range(len(tail)))
    return sorted({piece for form, piece in pieces if stands(form, piece)})


def echo_windows(answers: Answers) -> tuple[Numbers, Numbers]:
    """Each prompt's last and each output's first LONGEST_ECHO ids, [B, K]; what is missing equals no id."""
    k = np.arange(LONGEST_ECHO)
    tail_at = answers.starts_B[:, None] + k - LONGEST_ECHO
    head_at = answers.starts_B[:, None] + k
    none = np.iinfo(np.int64)
    return (
        _ids_at(answers, tail_at, tail_at >= answers.offsets_B1[:-1, None], none.min),
        _ids_at(answers, head_at, head_at < answers.ends_B[:, None], none.max),
    )


def _ids_at(answers: Answers, at_BK: Numbers, has_BK: Flags, missing: int) -> Numbers:
    ids_BK = np.full(at_BK.shape, missing, np.int64)
    ids_BK[has_BK] = answers.ids_T[at_BK[has_BK]]
    return ids_BK


def after_end_of_turn(case: Case) -> Found:
    """Something behind the id that ends the turn."""
    first_B = case.markers.ends.nth(0)
    return _at(np.where(first_B < case.answers.ends_B - 1, first_B, NOWHERE))


def reasoning_reopened(case: Case) -> Found:
    """An opening marker where none may be, or a closing one too many."""
    return _at(case.course.reopened_B)


def reasoning_not_opened(case: Case) -> Found:
    """The model is to open its reasoning (or a channel) and begins with something else."""
    return _at(case.course.unopened_B)


def foreign_marker(case: Case) -> Found:
    """A role or turn marker inside the answer, or a channel's marker where the grammar has none."""
    return _at(case.course.foreign_B)


def truncated(case: Case) -> Found:
    """Cut by its budget, in a recipe that sets such rows apart."""
    return _nowhere(case.cut_B & (case.on_truncated == "quarantine"))


def no_end_of_turn(case: Case) -> Found:
    """Stopped, but not by an id that ends a turn, or by another id than the server names."""
    answers, markers = case.answers, case.markers
    fine_B = markers.last_is_end_B & (answers.matched_text_B == "") & ~_differs(answers.matched_id_B, markers.last_id_B)
    bad_B = case.stopped_B & ~fine_B
    return Found(bad_B, np.where(bad_B, answers.ends_B - 1, NOWHERE))


def reasoning_not_closed(case: Case) -> Found:
    """Ended the turn inside its reasoning."""
    bad_B = case.stopped_B & case.course.inside_B
    return Found(bad_B, np.where(bad_B, case.answers.ends_B - 1, NOWHERE))


def empty_content(case: Case) -> Found:
    """Nothing but white space between the reasoning (or the start) and the end of the turn."""
    start_B = case.course.content_B
    bad_B = case.stopped_B & (start_B != NOWHERE)
    bad_B &= first_not_blank(case.markers.blanks, start_B) >= case.body_ends_B
    return Found(bad_B, np.where(bad_B, start_B, NOWHERE))


def degenerate(case: Case) -> Found:
    """A loop at the end. The wide rules count only where the budget cut it: a model in a loop does not end its turn."""
    if case.degenerate == "off":
        return _nowhere(np.zeros(len(case.answers), np.bool_))
    bound = AUTO_BOUND if case.degenerate == "auto" else case.degenerate
    ids_T, starts_B, ends_B = case.answers.ids_T, case.answers.starts_B, case.body_ends_B
    at_B = short_cycle_starts(ids_T, starts_B, ends_B, bound=bound)
    for wide in (long_cycle_starts, repetition_starts):
        rows = np.flatnonzero((at_B == NOWHERE) & case.cut_B)
        at_B[rows] = wide(ids_T, starts_B[rows], ends_B[rows], bound=bound)
    return _at(at_B)


RULES: Mapping[Reason, Rule] = MappingProxyType(
    {
        Reason.ABORTED: aborted,
        Reason.CORRUPTED: corrupted,
        Reason.PROMPT_MISMATCH: prompt_mismatch,
        Reason.COUNT_MISMATCH: count_mismatch,
        Reason.ID_OUT_OF_RANGE: id_out_of_range,
        Reason.EMPTY_OUTPUT: empty_output,
        Reason.PROMPT_ECHO: prompt_echo,
        Reason.AFTER_END_OF_TURN: after_end_of_turn,
        Reason.REASONING_REOPENED: reasoning_reopened,
        Reason.REASONING_NOT_OPENED: reasoning_not_opened,
        Reason.FOREIGN_MARKER: foreign_marker,
        Reason.TRUNCATED: truncated,
        Reason.NO_END_OF_TURN: no_end_of_turn,
        Reason.REASONING_NOT_CLOSED: reasoning_not_closed,
        Reason.EMPTY_CONTENT: empty_content,
        Reason.DEGENERATE: degenerate,
    }
)
"""Every reason an answer can get, with its rule."""
