"""The grammar of one block: reasoning up to a closing marker, then content.

Who opens the block decides what may stand in the answer: the prompt (one closing
marker, no opening one), the model (one of each, the opening one first), or
nobody (no marker at all, since the prompt closed it or there is none).

A marker of several ids is ordinary text to the model. One that writes *about*
`</think>` writes the ids that close its reasoning, and nothing on ids tells the
two apart; where the marker is an id of its own, text about it has other ids.
"""

from __future__ import annotations

import numpy as np

from draftmill.judging.answers import LENGTH, Answers, Numbers
from draftmill.judging.course import Course, earlier
from draftmill.judging.markers import NOWHERE, Markers, cut_off_at, first_not_blank
from draftmill.judging.structure import Structure
from draftmill.records import Thinking

ALLOWED = {
    Thinking.OPENED_BY_PROMPT: (0, 1),
    Thinking.OPENED_BY_MODEL: (1, 1),
    Thinking.CLOSED_BY_PROMPT: (0, 0),
    Thinking.NONE: (0, 0),
}
"""Opening and closing markers that an answer may have."""


def course_of_blocks(answers: Answers, structure: Structure, markers: Markers) -> Course:
    """The course of every row whose structure has no channels."""
    opens, closes, thinking = markers.opens, markers.closes, structure.thinking
    num_opens, num_closes = ALLOWED[thinking]
    closed_B, behind_B = closes.nth(0) != NOWHERE, closes.nth_behind(0)
    if thinking is Thinking.OPENED_BY_MODEL:
        inside_B = (opens.nth(0) != NOWHERE) & ~closed_B
    else:
        inside_B = ~closed_B & (thinking is Thinking.OPENED_BY_PROMPT)
    return Course(
        reopened_B=earlier(opens.nth(num_opens), closes.nth(num_closes)),
        unopened_B=_unopened(answers, structure, markers),
        foreign_B=markers.foreign.nth(0),
        inside_B=inside_B,
        content_B=np.where(closed_B, behind_B, answers.starts_B),
        reasoning_end_B=np.where(closed_B & (num_closes > 0), behind_B - 1, NOWHERE),
    )


def _unopened(answers: Answers, structure: Structure, markers: Markers) -> Numbers:
    """Where something else than white space and the opening marker stands first."""
    if structure.thinking is not Thinking.OPENED_BY_MODEL:
        return np.full(len(answers), NOWHERE, np.int64)
    first_B = first_not_blank(markers.blanks, answers.starts_B)
    fine_B = (first_B >= answers.ends_B) | (first_B == markers.opens.nth(0))
    cut = np.flatnonzero(~fine_B & (answers.finish_type_B == LENGTH))
    for form in structure.opens:
        fine_B[cut] |= cut_off_at(answers, form, first_B[cut], cut)
    return np.where(fine_B, NOWHERE, first_B)
