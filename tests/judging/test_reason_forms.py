"""Markers of one id, of several, and of several forms: where reasoning begins and ends in the three ways to open it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge, judge_one
from draftmill.judging.structure import Structure
from draftmill.records import Completion, Reason, Thinking, Verdict

PROMPT, MODEL, CLOSED, NONE = (
    Thinking.OPENED_BY_PROMPT,
    Thinking.OPENED_BY_MODEL,
    Thinking.CLOSED_BY_PROMPT,
    Thinking.NONE,
)
TAIL = {PROMPT: [5, 10, 1, 7], MODEL: [5, 10, 7], CLOSED: [5, 10, 1, 7, 2, 7], NONE: [5, 10, 7]}
CALL, CALLED = 41, 42
"""Markers around a tool's call: the template's own, but no role's."""

# Ordinary text, as a tokenizer without the markers writes it. `</` merges with a full stop
# before it, and `>` with the line break behind it: three further forms.
LESS, SLASH, THINK, MORE, DOT_SLASH, MORE_BREAK = 50, 51, 52, 53, 54, 55
OPEN, CLOSE = (LESS, THINK, MORE), (SLASH, THINK, MORE)
FORMS: dict[str, Any] = {
    "open_ids": OPEN,
    "open_also": ((LESS, THINK, MORE_BREAK),),
    "close_ids": CLOSE,
    "close_also": ((DOT_SLASH, THINK, MORE), (SLASH, THINK, MORE_BREAK), (DOT_SLASH, THINK, MORE_BREAK)),
}
FORMS_TAIL = {PROMPT: [5, 10, LESS, THINK, MORE_BREAK], MODEL: [5, 10, 7]}

Judge = Callable[..., Verdict]


@pytest.fixture
def verdict(structure_of: Callable[..., Structure], completion_of: Callable[..., Completion]) -> Judge:
    """`verdict(thinking, output)` where markers are single ids, positions counted in the output."""

    def of(thinking: Thinking, output: Sequence[int], *, prompt: Sequence[int] = (), **said: Any) -> Verdict:
        whole = [*prompt, *TAIL[thinking]]
        found = judge_one(
            completion_of(whole, output, **said), structure_of(thinking), on_truncated="keep", degenerate="auto"
        )
        return counted_in_output(found, len(whole))

    return of


@pytest.fixture
def formed(structure_of: Callable[..., Structure], completion_of: Callable[..., Completion]) -> Judge:
    """The same where the markers are ordinary text of several forms."""

    def of(thinking: Thinking, output: Sequence[int], **said: Any) -> Verdict:
        tail = FORMS_TAIL[thinking]
        structure = structure_of(thinking, tail_ids=tuple(tail), **FORMS)
        found = judge_one(completion_of(tail, output, **said), structure, on_truncated="keep", degenerate="auto")
        return counted_in_output(found, len(tail))

    return of


def counted_in_output(verdict: Verdict, prompt_len: int) -> Verdict:
    def moved(position: int | None) -> int | None:
        return None if position is None else position - prompt_len

    fields = {name: getattr(verdict, name) for name in Verdict.__slots__}
    return Verdict(**fields | {"position": moved(verdict.position), "reasoning_end": moved(verdict.reasoning_end)})


def place(verdict: Verdict) -> tuple[Reason | None, int | None, int | None]:
    return verdict.reason, verdict.position, verdict.reasoning_end


@pytest.mark.parametrize(
    ("thinking", "output", "wanted"),
    [
        (PROMPT, [2, 12, 3], (None, None, 0)),  # closed at once: empty reasoning
        (PROMPT, [11, 12, 2, 3], (Reason.EMPTY_CONTENT, 3, 2)),  # closed at the last place
        (PROMPT, [11, 12, 3], (Reason.REASONING_NOT_CLOSED, 2, None)),  # reasoning only
        (PROMPT, [11, 2, CALL, 30, CALLED, 3], (None, None, 1)),  # a tool's call is content
        (PROMPT, [11, CALL, 30, CALLED, 3], (Reason.REASONING_NOT_CLOSED, 4, None)),
        (PROMPT, [7, 2, 12, 3], (None, None, 1)),  # the line break that the prompt ended with
        (MODEL, [1, 2, 12, 3], (None, None, 1)),
        (MODEL, [1, 11, 2, 3], (Reason.EMPTY_CONTENT, 3, 2)),
        (MODEL, [1, 11, 3], (Reason.REASONING_NOT_CLOSED, 2, None)),
        (MODEL, [1, 3], (Reason.REASONING_NOT_CLOSED, 1, None)),
        (MODEL, [1, 11, 2, CALL, 30, CALLED, 3], (None, None, 2)),
        (MODEL, [2, 12, 3], (Reason.REASONING_NOT_OPENED, 0, 0)),  # closed, never opened
        (MODEL, [7, 1, 11, 2, 12, 3], (None, None, 3)),
        (CLOSED, [12, 3], (None, None, None)),
        (CLOSED, [CALL, 30, CALLED, 3], (None, None, None)),
        (CLOSED, [7, 12, 3], (None, None, None)),
        (CLOSED, [12, 2, 12, 3], (Reason.REASONING_REOPENED, 1, None)),
        (NONE, [CALL, 30, CALLED, 3], (None, None, None)),
        (NONE, [7, 12, 3], (None, None, None)),
    ],
)
def test_one_id(
    verdict: Judge, thinking: Thinking, output: list[int], wanted: tuple[Reason | None, int | None, int | None]
) -> None:
    assert place(verdict(thinking, output)) == wanted


@pytest.mark.parametrize(
    ("thinking", "output", "wanted"),
    [
        (PROMPT, [11], (None, None, None)),  # inside the reasoning
        (PROMPT, [11, 2], (None, None, 1)),  # behind its last id
        (PROMPT, [11, 2, 7], (None, None, 1)),
        (MODEL, [1], (None, None, None)),
        (MODEL, [7], (None, None, None)),
        (MODEL, [11], (Reason.REASONING_NOT_OPENED, 0, None)),
        (CLOSED, [7], (None, None, None)),
    ],
)
def test_cut_by_the_budget(
    verdict: Judge, thinking: Thinking, output: list[int], wanted: tuple[Reason | None, int | None, int | None]
) -> None:
    assert place(verdict(thinking, output, finish_type="length")) == wanted


@pytest.mark.parametrize("thinking", [PROMPT, MODEL, CLOSED, NONE])
def test_what_a_user_typed_is_the_prompts(verdict: Judge, thinking: Thinking) -> None:
    """Markers in the prompt, also as its first and last ids before the tail, are no part of the answer."""
    output = {PROMPT: [11, 2, 12, 3], MODEL: [1, 11, 2, 12, 3]}.get(thinking, [12, 3])
    plain, typed = verdict(thinking, output), verdict(thinking, output, prompt=[2, 3, 1, 5, 2])
    assert plain.reason is None
    assert typed == plain


def test_only_counted_is_an_answer_that_begins_with_the_prompts_last_id(
    structure_of: Callable[..., Structure], completion_of: Callable[..., Completion]
) -> None:
    for thinking, rest in ((PROMPT, [11, 2, 12, 3]), (MODEL, [1, 2, 12, 3]), (CLOSED, [12, 3]), (NONE, [12, 3])):
        completions = [completion_of(TAIL[thinking], output) for output in ([7, *rest], rest)]
        verdicts = judge(
            Answers.of_completions(completions), structure_of(thinking), on_truncated="keep", degenerate="auto"
        )
        assert (verdicts.counts(), verdicts.single_echo_B.tolist()) == ({}, [True, False]), thinking


def test_text_about_a_marker_is_not_the_marker(verdict: Judge) -> None:
    """A model that explains `<think>` and `</think>` in ordinary ids, where the markers are ids of their own."""
    about = [*OPEN, 12, *CLOSE]
    assert place(verdict(PROMPT, [*about, 2, *about, 3])) == (None, None, 7)
    assert place(verdict(MODEL, [1, *about, 2, *about, 3])) == (None, None, 8)
    assert place(verdict(NONE, [*about, 3])) == (None, None, None)


def test_text_about_a_marker_that_is_ordinary_text_is_the_marker(formed: Judge) -> None:
    """Nothing on ids tells them apart: the first one closes, the true one is one too many."""
    assert place(formed(PROMPT, [11, *CLOSE, 11, *CLOSE, 12, 3])) == (Reason.REASONING_REOPENED, 5, 3)


FORM = {
    "as written": CLOSE,
    "after a full stop": (DOT_SLASH, THINK, MORE),
    "before a line break": (SLASH, THINK, MORE_BREAK),
    "between the two": (DOT_SLASH, THINK, MORE_BREAK),
}


@pytest.mark.parametrize("form", FORM.values(), ids=FORM)
def test_each_form_closes(formed: Judge, form: tuple[int, ...]) -> None:
    assert place(formed(PROMPT, [11, *form, 12, 3])) == (None, None, 3)
    assert place(formed(PROMPT, [*form, 12, 3])) == (None, None, 2)  # at once
    assert place(formed(PROMPT, [11, *form, 7, 3])) == (Reason.EMPTY_CONTENT, 4, 3)
    assert place(formed(PROMPT, [11, *form[:2], 12, 3])) == (Reason.REASONING_NOT_CLOSED, 4, None)
    assert place(formed(PROMPT, [11, *form, 12, *CLOSE, 3])) == (Reason.REASONING_REOPENED, 5, 3)
    assert place(formed(PROMPT, [11, *form[:2]], finish_type="length")) == (None, None, None)  # cut inside the marker


def test_each_form_opens(formed: Judge) -> None:
    for form in (OPEN, (LESS, THINK, MORE_BREAK)):
        assert place(formed(MODEL, [*form, 11, *CLOSE, 12, 3])) == (None, None, 6)
        assert place(formed(MODEL, [7, *form, 11, *CLOSE, 12, 3])) == (None, None, 7)
        assert place(formed(MODEL, [11, *form, *CLOSE, 12, 3])) == (Reason.REASONING_NOT_OPENED, 0, 6)
        assert place(formed(PROMPT, [11, *form, 11, *CLOSE, 12, 3])) == (Reason.REASONING_REOPENED, 1, 7)


def test_cut_inside_the_opening_marker_nothing_else_has_begun(formed: Judge) -> None:
    for begun in ([LESS], [LESS, THINK], [7, LESS]):
        assert place(formed(MODEL, begun, finish_type="length")) == (None, None, None)
    assert place(formed(MODEL, [LESS, 12], finish_type="length")) == (Reason.REASONING_NOT_OPENED, 0, None)
    assert place(formed(MODEL, [LESS, THINK, 3])) == (Reason.REASONING_NOT_OPENED, 0, None)
    assert place(formed(MODEL, [LESS, THINK], matched=None)) == (Reason.REASONING_NOT_OPENED, 0, None)


def test_the_prompts_marker_again_is_an_echo_in_every_form(formed: Judge) -> None:
    assert place(formed(PROMPT, [LESS, THINK, MORE_BREAK, 11, *CLOSE, 12, 3])) == (Reason.PROMPT_ECHO, 0, 6)
    assert place(formed(PROMPT, [LESS, THINK, 11, *CLOSE, 12, 3])) == (None, None, 5)


@pytest.mark.parametrize(
    ("forms", "output", "closes"),
    [
        # At one place the longest counts, in whatever order the forms are named.
        (((20, 21), (20, 21, 22)), [20, 21, 22, 12, 3], [(0, 3)]),
        (((20, 21, 22), (20, 21)), [20, 21, 22, 12, 3], [(0, 3)]),
        (((20, 21), (20, 21, 22)), [20, 21, 12, 3], [(0, 2)]),
        # What one covers is not read again.
        (((20, 21), (21, 22)), [20, 21, 22, 12, 3], [(0, 2)]),
        (((20, 20),), [20, 20, 20, 12, 3], [(0, 2)]),
        (((20, 20),), [20, 20, 20, 20, 12, 3], [(0, 2), (2, 4)]),
        (((20, 21), (21, 22), (22, 23)), [20, 21, 22, 23, 12, 3], [(0, 2), (2, 4)]),
        (((20, 21, 22, 23), (21, 22), (22, 23)), [20, 21, 22, 23, 22, 23, 3], [(0, 4), (4, 6)]),
        (((20, 21), (21,)), [20, 21, 21, 12, 3], [(0, 2), (2, 3)]),
    ],
)
def test_overlapping_forms(
    structure_of: Callable[..., Structure],
    completion_of: Callable[..., Completion],
    forms: tuple[tuple[int, ...], ...],
    output: list[int],
    closes: list[tuple[int, int]],
) -> None:
    structure = structure_of(PROMPT, close_ids=forms[0], close_also=forms[1:])
    prompt = TAIL[PROMPT]
    # A second row right behind: nothing is read across the border.
    answers = Answers.of_completions([completion_of(prompt, output), completion_of([21, 22], [12, 3])])
    found = judge(answers, structure, on_truncated="keep", degenerate="off").case.markers.closes
    spans = zip((found.at - len(prompt)).tolist(), (found.behind - len(prompt)).tolist(), strict=True)
    assert [*spans] == closes
    assert found.row.tolist() == [0] * len(closes)


FEW = st.integers(20, 22)


@given(
    forms=st.lists(st.lists(FEW, min_size=1, max_size=4).map(tuple), min_size=1, max_size=4, unique=True),
    outputs=st.lists(st.lists(FEW, max_size=24), min_size=1, max_size=4),
)
def test_forms_are_read_from_left_to_right(
    structure_of: Callable[..., Structure],
    completion_of: Callable[..., Completion],
    forms: list[tuple[int, ...]],
    outputs: list[list[int]],
) -> None:
    structure = structure_of(PROMPT, close_ids=forms[0], close_also=tuple(forms[1:]))
    answers = Answers.of_completions([completion_of([20, 21], output) for output in outputs])
    found = judge(answers, structure, on_truncated="keep", degenerate="off").case.markers.closes
    wanted = [
        (int(answers.starts_B[b]) + at, width) for b, output in enumerate(outputs) for at, width in read(output, forms)
    ]
    assert [*zip(found.at.tolist(), found.width.tolist(), strict=True)] == wanted


def read(output: list[int], forms: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(output):
        width = max((len(form) for form in forms if tuple(output[at : at + len(form)]) == form), default=0)
        found += [(at, width)] if width else []
        at += width or 1
    return found
