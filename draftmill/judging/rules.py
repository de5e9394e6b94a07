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

from draftmill.judging import loops
from draftmill.judging.answers import NOT_GIVEN, Answers, Flags, Numbers
from draftmill.judging.markers import NOWHERE, Markers, first_not_blank
from draftmill.judging.structure import Structure
from draftmill.records import Reason, Thinking

STOP, LENGTH = "stop", "length"
"""The two ways in which an answer may end; all others are aborts."""

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
    on_truncated: str
    degenerate: Literal["auto", "off"] | int

    @property
    def stopped_B(self) -> Flags:
        return np.asarray(self.answers.finish_type_B == STOP)

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
    markers = {*structure.foreign_ids, *_single(structure.open_ids), *_single(structure.close_ids)}
    repeatable = sorted(markers & set(structure.tail_ids))
    bad_B |= np.isin(heads_BK[:, 0], np.array(repeatable, np.int64))
    return Found(bad_B, np.where(bad_B, answers.starts_B, NOWHERE))


def echo_windows(answers: Answers) -> tuple[Numbers, Numbers]:
    """Each prompt's last and each output's first LONGEST_ECHO ids, [B, K]; what is missing equals no id."""
    k = np.arange(LONGEST_ECHO)
    tail_at = answers.starts_B[:, None] + k - LONGEST_ECHO
    head_at = answers.starts_B[:, None] + k
    padded_T = np.append(answers.ids_T.astype(np.int64), 0)
    has_tail, has_head = tail_at >= answers.offsets_B1[:-1, None], head_at < answers.ends_B[:, None]
    tails_BK = np.where(has_tail, padded_T[np.where(has_tail, tail_at, -1)], np.iinfo(np.int64).min)
    heads_BK = np.where(has_head, padded_T[np.where(has_head, head_at, -1)], np.iinfo(np.int64).max)
    return tails_BK, heads_BK


def _single(marker: tuple[int, ...]) -> tuple[int, ...]:
    return marker if len(marker) == 1 else ()


def after_end_of_turn(case: Case) -> Found:
    """Something behind the id that ends the turn."""
    first_B = case.markers.ends.nth(0)
    return _at(np.where(first_B < case.answers.ends_B - 1, first_B, NOWHERE))


def reasoning_reopened(case: Case) -> Found:
    """An opening marker where none may be, or a closing one too many."""
    opens, closes = case.markers.opens, case.markers.closes
    allowed = {
        Thinking.OPENED_BY_PROMPT: (0, 1),
        Thinking.OPENED_BY_MODEL: (1, 1),
        Thinking.CLOSED_BY_PROMPT: (0, 0),
        Thinking.NONE: (0, 0),
    }
    num_opens, num_closes = allowed[case.structure.thinking]
    return _at(_earlier(opens.nth(num_opens), closes.nth(num_closes)))


def _earlier(a_B: Numbers, b_B: Numbers) -> Numbers:
    return np.where((a_B == NOWHERE) | ((b_B != NOWHERE) & (b_B < a_B)), b_B, a_B)


def reasoning_not_opened(case: Case) -> Found:
    """The model is to open its reasoning and begins with something else."""
    first_B = first_not_blank(case.markers.blanks, case.answers.starts_B)
    fine_B = (first_B >= case.answers.ends_B) | (first_B == case.markers.opens.nth(0))
    fine_B |= case.structure.thinking is not Thinking.OPENED_BY_MODEL
    return _at(np.where(fine_B, NOWHERE, first_B))


def foreign_marker(case: Case) -> Found:
    """A role or turn marker inside the answer."""
    return _at(case.markers.foreign.nth(0))


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
    closed_B = case.markers.closes.nth(0) != NOWHERE
    bad_B = case.stopped_B & ~closed_B
    if case.structure.thinking is Thinking.OPENED_BY_MODEL:
        bad_B &= case.markers.opens.nth(0) != NOWHERE
    elif case.structure.thinking is not Thinking.OPENED_BY_PROMPT:
        bad_B &= False
    return Found(bad_B, np.where(bad_B, case.answers.ends_B - 1, NOWHERE))


def empty_content(case: Case) -> Found:
    """Nothing but white space between the reasoning (or the start) and the end of the turn."""
    start_B = content_start(case)
    stop_B = case.answers.ends_B - case.markers.last_is_end_B
    bad_B = case.stopped_B & (first_not_blank(case.markers.blanks, start_B) >= stop_B)
    return Found(bad_B, np.where(bad_B, start_B, NOWHERE))


def content_start(case: Case) -> Numbers:
    """Where the content begins: behind the closing marker, else at the output's start."""
    close_B = case.markers.closes.nth(0)
    return np.where(close_B == NOWHERE, case.answers.starts_B, close_B + len(case.structure.close_ids))


def degenerate(case: Case) -> Found:
    """A loop at the end."""
    answers = case.answers
    ends_B = answers.ends_B - case.markers.last_is_end_B
    bad_B = loops.degenerate(answers.ids_T, answers.starts_B, ends_B, bound=case.degenerate)
    num_ids = 0 if case.degenerate == "off" else loops.window_ids(case.degenerate)
    return Found(bad_B, np.where(bad_B, ends_B - num_ids, NOWHERE))


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
