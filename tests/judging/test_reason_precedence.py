"""Of two broken rules the first in the contract's order names the row: every pair that can coincide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest

from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge
from draftmill.judging.rules import RULES
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Reason, Thinking

ORDER = (
    Reason.ABORTED, Reason.CORRUPTED, Reason.PROMPT_MISMATCH, Reason.COUNT_MISMATCH, Reason.ID_OUT_OF_RANGE,
    Reason.EMPTY_OUTPUT, Reason.PROMPT_ECHO, Reason.AFTER_END_OF_TURN, Reason.REASONING_REOPENED,
    Reason.REASONING_NOT_OPENED, Reason.FOREIGN_MARKER, Reason.TRUNCATED, Reason.NO_END_OF_TURN,
    Reason.REASONING_NOT_CLOSED, Reason.EMPTY_CONTENT, Reason.DEGENERATE,
)  # fmt: skip
"""As the contract lists them."""

OF_A_STOP = {Reason.NO_END_OF_TURN, Reason.REASONING_NOT_CLOSED, Reason.EMPTY_CONTENT}
OF_IDS = {
    Reason.ID_OUT_OF_RANGE, Reason.PROMPT_ECHO, Reason.AFTER_END_OF_TURN, Reason.REASONING_REOPENED,
    Reason.REASONING_NOT_OPENED, Reason.FOREIGN_MARKER, Reason.DEGENERATE,
}  # fmt: skip


def can_coincide(one: Reason, other: Reason) -> bool:
    """What stopped was neither aborted nor cut, what was cut not aborted; where no ids are, none is wrong."""
    pair = {one, other}
    if pair & {Reason.ABORTED, Reason.TRUNCATED} and (pair & OF_A_STOP or pair == {Reason.ABORTED, Reason.TRUNCATED}):
        return False
    return not (Reason.EMPTY_OUTPUT in pair and pair & OF_IDS)


@dataclass
class Parts:
    """A good row, in pieces that a fault changes. The model opens its reasoning only where that is the fault."""

    tail: list[int]
    front: list[int] = field(default_factory=list)
    thought: list[int] = field(default_factory=lambda: [11])
    close: list[int] = field(default_factory=lambda: [2])
    content: list[int] = field(default_factory=lambda: [12, 13])
    end: list[int] = field(default_factory=lambda: [3])
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> list[int]:
        return [*self.front, *self.thought, *self.close, *self.content, *self.end]


def broken(faults: set[Reason]) -> tuple[Thinking, Parts]:
    """A row with those faults, built from a good one."""
    by_model = Reason.REASONING_NOT_OPENED in faults
    parts = Parts(tail=[5, 10, 7] if by_model else [5, 10, 1, 7], thought=[1, 11] if by_model else [11])
    if {Reason.REASONING_NOT_CLOSED, Reason.EMPTY_CONTENT} <= faults:
        parts.thought = [7]
    for fault in ORDER:
        if fault in faults:
            FAULTS[fault](parts)
    return (Thinking.OPENED_BY_MODEL if by_model else Thinking.OPENED_BY_PROMPT), parts


def says(**said: Any) -> Callable[[Parts], None]:
    return lambda parts: parts.said.update(said)


def nothing(parts: Parts) -> None:
    parts.thought, parts.close, parts.content, parts.end = [], [], [], []


def blank(parts: Parts) -> None:
    parts.content = [7] if parts.content else []


def loop(parts: Parts) -> None:
    parts.content = parts.content[:1] * 256


FAULTS: dict[Reason, Callable[[Parts], None]] = {
    Reason.ABORTED: says(finish_type="abort"),
    Reason.CORRUPTED: says(matched="NaN happened"),
    Reason.PROMPT_MISMATCH: says(prompt_tokens=999),
    Reason.COUNT_MISMATCH: says(completion_tokens=999),
    Reason.ID_OUT_OF_RANGE: lambda parts: parts.thought.append(100),
    Reason.EMPTY_OUTPUT: nothing,
    Reason.PROMPT_ECHO: lambda parts: parts.front.extend(parts.tail[-2:]),
    Reason.AFTER_END_OF_TURN: lambda parts: parts.thought.append(3),
    Reason.REASONING_REOPENED: lambda parts: parts.thought.append(1),
    Reason.REASONING_NOT_OPENED: lambda parts: parts.front.append(11),
    Reason.FOREIGN_MARKER: lambda parts: parts.thought.append(5),
    Reason.TRUNCATED: says(finish_type="length"),
    Reason.NO_END_OF_TURN: lambda parts: parts.said.setdefault("matched", 4),
    Reason.REASONING_NOT_CLOSED: lambda parts: parts.close.clear(),
    Reason.EMPTY_CONTENT: blank,
    Reason.DEGENERATE: loop,
}

PAIRS = [pair for pair in combinations(ORDER, 2) if can_coincide(*pair)]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]} and {pair[1]}")
def test_the_earlier_one_names_the_row(
    structure_of: Callable[..., Structure], completion_of: Callable[..., Completion], pair: tuple[Reason, Reason]
) -> None:
    thinking, parts = broken(set(pair))
    answers = Answers.of_completions([completion_of(parts.tail, parts.output, **parts.said)])
    verdicts = judge(answers, structure_of(thinking), on_truncated="quarantine", degenerate="auto")
    rules_broken = [reason for reason in ORDER if RULES[reason](verdicts.case).bad_B[0]]
    assert set(pair) <= set(rules_broken)
    assert verdicts.reason(0) == pair[0] == rules_broken[0]


@pytest.mark.parametrize("fault", ORDER)
def test_each_fault_alone(
    structure_of: Callable[..., Structure], completion_of: Callable[..., Completion], fault: Reason
) -> None:
    thinking, parts = broken({fault})
    answers = Answers.of_completions([completion_of(parts.tail, parts.output, **parts.said)])
    verdicts = judge(answers, structure_of(thinking), on_truncated="quarantine", degenerate="auto")
    assert verdicts.reason(0) == fault


def test_no_fault(structure_of: Callable[..., Structure], completion_of: Callable[..., Completion]) -> None:
    for faults in (set(), {Reason.REASONING_NOT_OPENED}):
        thinking, parts = broken(faults)
        parts.front.clear()
        answers = Answers.of_completions([completion_of(parts.tail, parts.output)])
        verdicts = judge(answers, structure_of(thinking), on_truncated="quarantine", degenerate="auto")
        assert verdicts.counts() == {}


def test_pairs_that_cannot_coincide_are_few() -> None:
    assert len(PAIRS) == 16 * 15 // 2 - 14
