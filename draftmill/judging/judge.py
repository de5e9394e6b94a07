"""The one judge of answers: answers and a structure in, one verdict a row out.

Pure and vectorised over a chunk: no loop over ids, no clock, no text. All rules
are asked, and of those a row breaks, the first in `records.Reason`'s order names
it. Details are written only for the rows somebody asks about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from draftmill.judging.answers import Answers, Flags, Numbers
from draftmill.judging.blocks import course_of_blocks
from draftmill.judging.channels import course_of_channels
from draftmill.judging.explain import explain
from draftmill.judging.markers import NOWHERE, find_markers
from draftmill.judging.rules import RULES, Case, echo_windows
from draftmill.judging.structure import Structure
from draftmill.records import OF_AN_ANSWER, Completion, Reason, Verdict

OK = -1
"""Code of a good row; others are indices into `records.OF_AN_ANSWER`."""

NONE = -1
"""Stands for null in `reasoning_end_B`, `stop_id_B` and `position_B`."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A chunk's verdicts.

    `code_B`: OK or an index into OF_AN_ANSWER. `reasoning_end_B`, `position_B`:
    indices in the row's prompt + output; `stop_id_B`: an id; NONE for null.
    `single_echo_B`: good rows that begin with the prompt's last id, an ordinary
    one: only counted.
    """

    case: Case
    code_B: npt.NDArray[np.int8]
    reasoning_end_B: Numbers
    stop_id_B: Numbers
    position_B: Numbers
    single_echo_B: Flags

    def __len__(self) -> int:
        return len(self.code_B)

    def __iter__(self) -> Iterator[Verdict]:
        """The verdicts, row by row."""
        return (self.verdict(b) for b in range(len(self)))

    @property
    def ok_B(self) -> Flags:
        return np.asarray(self.code_B == OK)

    def reason(self, b: int) -> Reason | None:
        """Row b's reason; None when it is good."""
        return None if self.code_B[b] == OK else OF_AN_ANSWER[self.code_B[b]]

    def counts(self) -> dict[Reason, int]:
        """How many rows each reason names, in order of precedence; only reasons that occur."""
        codes, numbers = np.unique(self.code_B[self.code_B != OK], return_counts=True)
        return {OF_AN_ANSWER[code]: int(number) for code, number in zip(codes, numbers, strict=True)}

    def verdict(self, b: int) -> Verdict:
        """Row b's verdict, with a detail that names the position and the ids around it."""
        reason, position = self.reason(b), _null(self.position_B[b])
        return Verdict(
            reason=reason,
            detail="" if reason is None else explain(self.case, b, reason, position),
            position=position,
            reasoning_end=_null(self.reasoning_end_B[b]),
            stop_id=_null(self.stop_id_B[b]),
        )


def judge(
    answers: Answers, structure: Structure, *, on_truncated: str, degenerate: Literal["auto", "off"] | int
) -> Verdicts:
    """One verdict per row. `on_truncated` and `degenerate` are the recipe's."""
    case = _case(answers, structure, on_truncated, degenerate)
    code_B = np.full(len(answers), OK, np.int8)
    at_B = np.full(len(answers), NOWHERE, np.int64)
    for code, reason in enumerate(OF_AN_ANSWER):
        found = RULES[reason](case)
        first_B = found.bad_B & (code_B == OK)
        code_B[first_B] = code
        at_B[first_B] = found.at_B[first_B]
    return Verdicts(
        case=case,
        code_B=code_B,
        reasoning_end_B=_in_row(answers, case.course.reasoning_end_B),
        stop_id_B=_stop_id(case),
        position_B=_in_row(answers, at_B),
        single_echo_B=_single_echo(answers) & (code_B == OK),
    )


def judge_one(
    completion: Completion, structure: Structure, *, on_truncated: str, degenerate: Literal["auto", "off"] | int
) -> Verdict:
    """The verdict on one completion."""
    answers = Answers.of_completions([completion])
    return judge(answers, structure, on_truncated=on_truncated, degenerate=degenerate).verdict(0)


def _case(answers: Answers, structure: Structure, on_truncated: str, degenerate: Literal["auto", "off"] | int) -> Case:
    markers = find_markers(answers, structure)
    course_of = course_of_blocks if structure.channels is None else course_of_channels
    return Case(answers, structure, markers, course_of(answers, structure, markers), on_truncated, degenerate)


def _stop_id(case: Case) -> Numbers:
    """The id that ended the turn: the last one, where the server names it or it is known to end turns."""
    named_B = case.answers.matched_id_B == case.markers.last_id_B
    by_id_B = (case.answers.matched_text_B == "") & (named_B | case.markers.last_is_end_B)
    has_B = case.stopped_B & by_id_B & (case.answers.output_len_B > 0)
    return np.where(has_B, case.markers.last_id_B, NONE)


def _single_echo(answers: Answers) -> Flags:
    tails_BK, heads_BK = echo_windows(answers)
    return np.asarray(tails_BK[:, -1] == heads_BK[:, 0])


def _in_row(answers: Answers, at_B: Numbers) -> Numbers:
    return np.where(at_B == NOWHERE, NONE, at_B - answers.offsets_B1[:-1])


def _null(number: np.int64) -> int | None:
    return None if number == NONE else int(number)
