"""How each answer runs through its structure's grammar: what the rules about markers read.

Two grammars, one record: a block of reasoning before the content (`blocks`), or
messages on channels (`channels`). Which of the two it was no rule knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from draftmill.judging.answers import Flags, Numbers
from draftmill.judging.markers import NOWHERE


@dataclass(frozen=True, slots=True)
class Course:
    """Places are indices into `ids_T`, NOWHERE for none.

    `reopened_B`, `unopened_B`, `foreign_B`: where that rule is first broken.
    `inside_B`: the answer ends inside its reasoning. `content_B`: where its
    (last) content begins, NOWHERE where the grammar gives it none: that another
    rule names. `reasoning_end_B`: the last id of the (last) marker that closes
    the reasoning, NOWHERE when the answer ends inside it.
    """

    reopened_B: Numbers
    unopened_B: Numbers
    foreign_B: Numbers
    inside_B: Flags
    content_B: Numbers
    reasoning_end_B: Numbers


def earlier(a_B: Numbers, b_B: Numbers) -> Numbers:
    """The earlier of two places, NOWHERE only where both are."""
    return np.where((a_B == NOWHERE) | ((b_B != NOWHERE) & (b_B < a_B)), b_B, a_B)
