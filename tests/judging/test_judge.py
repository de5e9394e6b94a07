"""Every reason: a right row, the smallest wrong one, rows on the boundary; and which reason wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from draftmill.arrays import ids_array
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge, judge_one
from draftmill.judging.rules import RULES
from draftmill.judging.structure import Structure
from draftmill.records import OF_AN_ANSWER, Completion, Reason, Thinking, Verdict

PROMPT, MODEL, CLOSED, NONE = (
    Thinking.OPENED_BY_PROMPT,
    Thinking.OPENED_BY_MODEL,
    Thinking.CLOSED_BY_PROMPT,
    Thinking.NONE,
)
TAIL = {
    PROMPT: [6, 20, 5, 10, 1, 7],
    MODEL: [6, 20, 5, 10, 7],
    CLOSED: [6, 20, 5, 10, 1, 7, 2, 7],
    NONE: [6, 20, 5, 10, 7],
}

StructureOf = Callable[..., Structure]
CompletionOf = Callable[..., Completion]

CUT: dict[str, Any] = {"finish_type": "length"}
BAD_ECHO = {"echo_ids": ids_array("e", [9])}

# thinking, output, what the server said, verdict (None = good), position in the output
ROWS: list[tuple[Thinking, list[int], dict[str, Any], Reason | None, int | None]] = [
    # well formed
    (PROMPT, [11, 2, 12, 3], {}, None, None),
    (PROMPT, [2, 12, 3], {}, None, None),  # empty reasoning: the marker is the first id
    (PROMPT, [7, 11, 2, 7, 12, 4], {}, None, None),  # begins with the line break the prompt ended with
    (MODEL, [1, 11, 2, 12, 3], {}, None, None),
    (MODEL, [8, 1, 2, 12, 3], {}, None, None),  # white space before the marker
    (CLOSED, [12, 3], {}, None, None),
    (NONE, [12, 3], {}, None, None),
    (PROMPT, [11], CUT, None, None),  # cut inside the reasoning
    (PROMPT, [11, 2], CUT, None, None),  # cut right behind the marker
    (MODEL, [8], CUT, None, None),  # cut before anything was said
    (NONE, [12, 3], {"matched": None}, None, None),  # a server that does not name the id
    (NONE, [12, 3], {"prompt_tokens": None, "completion_tokens": None}, None, None),
    # the exchange
    (NONE, [12], {"finish_type": "abort"}, Reason.ABORTED, None),
    (NONE, [12, 3], {"finish_type": "eos"}, Reason.ABORTED, None),
    (NONE, [12, 3], {"matched": "NaN happened"}, Reason.CORRUPTED, None),
    (NONE, [12, 3], BAD_ECHO, Reason.PROMPT_MISMATCH, None),
    (NONE, [12, 3], {"prompt_tokens": 4}, Reason.PROMPT_MISMATCH, None),
    (NONE, [12, 3], {"completion_tokens": 3}, Reason.COUNT_MISMATCH, None),
    (NONE, [12, 3], {"max_new_tokens": 1}, Reason.COUNT_MISMATCH, None),
    (NONE, [12, 3], {"max_new_tokens": 2}, None, None),
    (NONE, [12, 12], {**CUT, "finish_length": 3}, Reason.COUNT_MISMATCH, None),
    (NONE, [12, 12], {**CUT, "finish_length": None}, None, None),
    # ids
    (NONE, [12, 100, 3], {}, Reason.ID_OUT_OF_RANGE, 1),
    (NONE, [12, -1, 3], {}, Reason.ID_OUT_OF_RANGE, 1),
    (NONE, [99, 0, 3], {}, None, None),
    (NONE, [], {}, Reason.EMPTY_OUTPUT, None),
    (NONE, [], CUT, Reason.EMPTY_OUTPUT, None),
    # the prompt's tail again
    (PROMPT, [1, 11, 2, 12, 3], {}, Reason.PROMPT_ECHO, 0),  # one marker of it
    (NONE, [5, 12, 3], {}, Reason.PROMPT_ECHO, 0),
    (CLOSED, [2, 12, 3], {}, Reason.PROMPT_ECHO, 0),
    (NONE, [10, 7, 12, 3], {}, Reason.PROMPT_ECHO, 0),  # two ids
    (NONE, [10, 8, 12, 3], {}, None, None),
    (NONE, [7, 12, 3], {}, None, None),  # one ordinary id
    (NONE, [20, 5, 10, 7, 12, 3], {}, Reason.PROMPT_ECHO, 0),
    (NONE, [6, 20, 5, 10, 7, 3], {}, Reason.PROMPT_ECHO, 0),  # the whole prompt
    (NONE, [6, 12, 3], {}, Reason.FOREIGN_MARKER, 0),  # a marker, but not one of the tail
    # the grammar
    (NONE, [12, 3, 12, 3], {}, Reason.AFTER_END_OF_TURN, 1),
    (NONE, [12, 4, 3], {}, Reason.AFTER_END_OF_TURN, 1),
    (NONE, [3, 3], {}, Reason.AFTER_END_OF_TURN, 0),
    (PROMPT, [11, 1, 2, 12, 3], {}, Reason.REASONING_REOPENED, 1),
    (PROMPT, [11, 2, 12, 1, 3], {}, Reason.REASONING_REOPENED, 3),
    (PROMPT, [11, 2, 2, 12, 3], {}, Reason.REASONING_REOPENED, 2),
    (MODEL, [1, 11, 1, 2, 12, 3], {}, Reason.REASONING_REOPENED, 2),
    (MODEL, [1, 2, 12, 2, 3], {}, Reason.REASONING_REOPENED, 3),
    (CLOSED, [12, 1, 3], {}, Reason.REASONING_REOPENED, 1),
    (CLOSED, [12, 2, 3], {}, Reason.REASONING_REOPENED, 1),
    (MODEL, [11, 3], {}, Reason.REASONING_NOT_OPENED, 0),
    (MODEL, [8, 11, 1, 2, 12, 3], {}, Reason.REASONING_NOT_OPENED, 1),
    (MODEL, [11], CUT, Reason.REASONING_NOT_OPENED, 0),
    (MODEL, [8, 3], {}, Reason.REASONING_NOT_OPENED, 1),
    (NONE, [12, 5, 12, 3], {}, Reason.FOREIGN_MARKER, 1),
    (PROMPT, [11, 6, 2, 12, 3], {}, Reason.FOREIGN_MARKER, 1),
    # the end
    (NONE, [12, 13], {}, Reason.NO_END_OF_TURN, 1),
    (NONE, [12, 3], {"matched": "###"}, Reason.NO_END_OF_TURN, 1),
    (NONE, [12, 3], {"matched": 4}, Reason.NO_END_OF_TURN, 1),
    (NONE, [12, 3], CUT, None, None),  # the budget ran out on it
    (PROMPT, [11, 3], {}, Reason.REASONING_NOT_CLOSED, 1),
    (MODEL, [1, 11, 3], {}, Reason.REASONING_NOT_CLOSED, 2),
    (PROMPT, [3], {}, Reason.REASONING_NOT_CLOSED, 0),
    (PROMPT, [11, 2, 3], {}, Reason.EMPTY_CONTENT, 2),
    (PROMPT, [11, 2, 7, 8, 3], {}, Reason.EMPTY_CONTENT, 2),
    (PROMPT, [11, 2, 7, 12, 3], {}, None, None),
    (NONE, [3], {}, Reason.EMPTY_CONTENT, 0),
    (CLOSED, [8, 3], {}, Reason.EMPTY_CONTENT, 0),
    (NONE, [7], CUT, None, None),
    # loops
    (NONE, [12] * 256 + [3], {}, Reason.DEGENERATE, 0),
    (NONE, [12] * 255 + [3], {}, None, None),  # the end id is none of the loop
    (NONE, [12] * 256, CUT, Reason.DEGENERATE, 0),
    (NONE, [13, *range(20, 52), *list(range(20, 52)) * 7, 3], {}, Reason.DEGENERATE, 1),
    (NONE, [13, *range(20, 53), *list(range(20, 53)) * 7, 3], {}, None, None),  # a cycle of 33
    (NONE, [12] * 300 + [13, 3], {}, None, None),  # it found its way out
]


@pytest.mark.parametrize(("thinking", "output", "said", "reason", "position"), ROWS)
def test_reasons(
    structure_of: StructureOf,
    completion_of: CompletionOf,
    thinking: Thinking,
    output: list[int],
    said: dict[str, Any],
    reason: Reason | None,
    position: int | None,
) -> None:
    prompt = TAIL[thinking]
    verdict = judge_one(
        completion_of(prompt, output, **said), structure_of(thinking), on_truncated="keep", degenerate="auto"
    )
    assert verdict.reason == reason
    assert verdict.position == (None if position is None else len(prompt) + position)
    assert bool(verdict.detail) == (reason is not None and reason is not Reason.EMPTY_OUTPUT)


def test_every_reason_has_a_rule_and_a_row() -> None:
    assert tuple(RULES) == OF_AN_ANSWER
    assert {row[3] for row in ROWS} == {None, *OF_AN_ANSWER} - {Reason.TRUNCATED}


@pytest.mark.parametrize(("on_truncated", "reason"), [("keep", None), ("quarantine", Reason.TRUNCATED)])
def test_truncated(
    structure_of: StructureOf, completion_of: CompletionOf, on_truncated: str, reason: Reason | None
) -> None:
    completion = completion_of(TAIL[PROMPT], [11, 12], **CUT)
    verdict = judge_one(completion, structure_of(PROMPT), on_truncated=on_truncated, degenerate="auto")
    assert (verdict.reason, verdict.stop_id, verdict.reasoning_end) == (reason, None, None)


@pytest.mark.parametrize(
    ("thinking", "output", "said", "reasoning_end", "stop_id"),
    [
        (PROMPT, [11, 2, 12, 3], {}, 1, 3),
        (PROMPT, [2, 12, 4], {}, 0, 4),
        (MODEL, [1, 11, 2, 12, 3], {}, 2, 3),
        (PROMPT, [11, 2], CUT, 1, None),
        (PROMPT, [11], CUT, None, None),  # ended inside it
        (CLOSED, [12, 3], {}, None, 3),  # closed by the prompt
        (NONE, [12, 3], {}, None, 3),  # there was none
        (NONE, [12, 3], {"matched": None}, None, 3),
    ],
)
def test_where_reasoning_ends_and_what_stopped_it(
    structure_of: StructureOf,
    completion_of: CompletionOf,
    thinking: Thinking,
    output: list[int],
    said: dict[str, Any],
    reasoning_end: int | None,
    stop_id: int | None,
) -> None:
    completion = completion_of(TAIL[thinking], output, **said)
    verdict = judge_one(completion, structure_of(thinking), on_truncated="keep", degenerate="auto")
    wanted = None if reasoning_end is None else len(TAIL[thinking]) + reasoning_end
    assert verdict == Verdict(None, "", None, wanted, stop_id)


def test_markers_of_several_ids(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    structure = structure_of(PROMPT, open_ids=(30, 31), close_ids=(30, 32, 31), tail_ids=(5, 30, 31))

    def verdict(output: list[int], **said: Any) -> Verdict:
        return judge_one(completion_of([5, 30, 31], output, **said), structure, on_truncated="keep", degenerate="auto")

    assert verdict([11, 30, 32, 31, 12, 3]) == Verdict(None, "", None, 6, 3)
    assert verdict([11, 30, 32, 12, 31, 12, 3]).reason is Reason.REASONING_NOT_CLOSED  # its ids, but not in a row
    assert verdict([11, 30, 31, 12, 3]).position == 4  # opened again
    assert verdict([11, 30, 32], **CUT).reason is None  # cut inside the marker
    assert verdict([11, 30, 32, 31, 7, 3]).reason is Reason.EMPTY_CONTENT
    assert verdict([31, 11, 30, 32, 31, 12, 3]).reason is None  # one ordinary id of the tail
    assert verdict([30, 31, 11, 30, 32, 31, 12, 3]).reason is Reason.PROMPT_ECHO


def test_a_user_who_typed_the_markers(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    prompt = [6, 2, 1, 3, 5, *TAIL[PROMPT]]
    completion = completion_of(prompt, [11, 2, 12, 3])
    verdict = judge_one(completion, structure_of(PROMPT), on_truncated="keep", degenerate="auto")
    assert verdict == Verdict(None, "", None, len(prompt) + 1, 3)


def test_precedence_is_the_order_of_the_contract(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    """All faults at once; each one that is healed uncovers the next."""
    output = [1, 100, 3, 5, 2, 2] + [12] * 256
    said: dict[str, Any] = {
        "finish_type": "abort", "matched": "NaN happened", "prompt_tokens": 1, "completion_tokens": 1
    }  # fmt: skip
    seen = []
    for heal in (
        {},
        {"finish_type": "stop"},
        {"matched": None},
        {"prompt_tokens": 6},
        {"completion_tokens": None},
    ):
        said |= heal
        completion = completion_of(TAIL[PROMPT], output, **said)
        seen.append(judge_one(completion, structure_of(PROMPT), on_truncated="keep", degenerate="auto").reason)
    for place in (1, 0, 2, 4, 3):
        output[place] = 12
        completion = completion_of(TAIL[PROMPT], output, **said)
        seen.append(judge_one(completion, structure_of(PROMPT), on_truncated="keep", degenerate="auto").reason)
    assert seen == [
        Reason.ABORTED, Reason.CORRUPTED, Reason.PROMPT_MISMATCH, Reason.COUNT_MISMATCH, Reason.ID_OUT_OF_RANGE,
        Reason.PROMPT_ECHO, Reason.AFTER_END_OF_TURN, Reason.REASONING_REOPENED, Reason.FOREIGN_MARKER,
        Reason.NO_END_OF_TURN,
    ]  # fmt: skip


def test_a_chunk_is_judged_as_its_rows_are(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    rows = [(output, said, reason) for thinking, output, said, reason, _ in ROWS if thinking is PROMPT]
    completions = [completion_of(TAIL[PROMPT], output, **said) for output, said, _ in rows]
    verdicts = judge(Answers.of_completions(completions), structure_of(PROMPT), on_truncated="keep", degenerate="auto")
    assert [verdicts.reason(b) for b in range(len(rows))] == [reason for _, _, reason in rows]
    assert sum(verdicts.counts().values()) == len(rows) - verdicts.ok_B.sum()
    for b, completion in enumerate(completions):
        one = judge_one(completion, structure_of(PROMPT), on_truncated="keep", degenerate="auto")
        assert verdicts.verdict(b) == one


def test_no_rows(structure_of: StructureOf) -> None:
    verdicts = judge(Answers.of_completions([]), structure_of(PROMPT), on_truncated="keep", degenerate="auto")
    assert (len(verdicts), verdicts.counts()) == (0, {})


def test_a_single_ordinary_echo_is_counted(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    completions = [completion_of(TAIL[NONE], output) for output in ([7, 12, 3], [12, 3])]
    verdicts = judge(Answers.of_completions(completions), structure_of(NONE), on_truncated="keep", degenerate="auto")
    assert verdicts.single_echo_B.tolist() == [True, False]


def test_detail_names_position_and_ids(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    completion = completion_of(TAIL[NONE], [12, 13, 5, 14, 3])
    verdict = judge_one(completion, structure_of(NONE), on_truncated="keep", degenerate="auto")
    assert verdict.detail == "at 7 (output id 2 of 5): 10 7 12 13 [5] 14 3"


def test_detail_of_a_wrong_count_says_only_what_is_known(
    structure_of: StructureOf, completion_of: CompletionOf
) -> None:
    def detail(**said: Any) -> str:
        completion = completion_of(TAIL[NONE], [12, 3], **said)
        return judge_one(completion, structure_of(NONE), on_truncated="keep", degenerate="off").detail

    assert detail(completion_tokens=9) == "2 ids came of 1000 asked for; counted 9"
    assert detail(completion_tokens=2, finish_type="length", finish_length=9) == (
        "2 ids came of 1000 asked for; counted 2, cut at 9"
    )
    assert detail(completion_tokens=None, max_new_tokens=1) == "2 ids came of 1 asked for"


def test_nothing_is_changed(structure_of: StructureOf, completion_of: CompletionOf) -> None:
    answers = Answers.of_completions([completion_of(TAIL[PROMPT], [11, 2, 12, 3])])
    before = answers.ids_T.copy()
    judge(answers, structure_of(PROMPT), on_truncated="keep", degenerate="auto")
    assert np.array_equal(answers.ids_T, before)
