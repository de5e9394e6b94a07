"""A bad row's reason in words, for people: the numbers behind it, the place, the ids around it.

Only written for rows that somebody looks at; nothing is decided by these texts.
"""

from __future__ import annotations

from draftmill.judging.answers import NOT_GIVEN
from draftmill.judging.loops import FEWEST_REPEATS, period_of
from draftmill.judging.rules import Case
from draftmill.records import Reason

IDS_AROUND = 4
"""Ids shown on each side of a position."""


def explain(case: Case, b: int, reason: Reason, position: int | None) -> str:
    """What row b's verdict says: `position` is its index in prompt + output."""
    numbers = _loop(case, b, position) if reason is Reason.DEGENERATE else _numbers(case, b, reason)
    place = "" if position is None else _place(case, b, position)
    return "; ".join(part for part in (numbers, place) if part)


def _numbers(case: Case, b: int, reason: Reason) -> str:
    answers = case.answers
    prompt_len, num_ids = int(answers.prompt_len_B[b]), int(answers.output_len_B[b])
    match reason:
        case Reason.ABORTED:
            return f"finish_reason {str(answers.finish_type_B[b])!r} after {num_ids} ids"
        case Reason.CORRUPTED:
            return f"the server says {str(answers.matched_text_B[b])!r}"
        case Reason.PROMPT_MISMATCH if answers.echo_equal_B[b]:
            return f"{prompt_len} prompt ids sent, the server counted {answers.prompt_tokens_B[b]}"
        case Reason.PROMPT_MISMATCH:
            return f"the server echoes other ids than the {prompt_len} sent"
        case Reason.COUNT_MISMATCH:
            counts = (("counted", answers.completion_tokens_B[b]), ("cut at", answers.finish_length_B[b]))
            said = ", ".join(f"{word} {number}" for word, number in counts if number != NOT_GIVEN)
            came = f"{num_ids} ids came of {answers.max_new_tokens_B[b]} asked for"
            return f"{came}; {said}" if said else came
        case Reason.ID_OUT_OF_RANGE:
            return f"the highest id is {case.structure.highest_id}"
        case Reason.TRUNCATED:
            return f"cut after {num_ids} ids"
        case Reason.NO_END_OF_TURN:
            matched = str(answers.matched_text_B[b]) or _said(int(answers.matched_id_B[b]))
            return f"stopped by {matched}; ids that end a turn: {list(case.structure.end_ids)}"
        case _:
            return ""


def _loop(case: Case, b: int, position: int | None) -> str:
    begin, end = int(case.answers.offsets_B1[b]) + (position or 0), int(case.body_ends_B[b])
    period = period_of(case.answers.ids_T[begin:end])
    if period is None:
        return f"of the last {end - begin} ids most lie in phrases said {FEWEST_REPEATS} times or more"
    return f"the last {end - begin} ids are one cycle of {period}"


def _said(number: int) -> str:
    return "nothing" if number == NOT_GIVEN else str(number)


def _place(case: Case, b: int, position: int) -> str:
    row = case.answers.row(b)
    prompt_len = int(case.answers.prompt_len_B[b])
    first, last = max(0, position - IDS_AROUND), min(len(row), position + IDS_AROUND + 1)
    shown = " ".join(f"[{row[i]}]" if i == position else str(row[i]) for i in range(first, last))
    return f"at {position} (output id {position - prompt_len} of {len(row) - prompt_len}): {shown}"
