"""The grammar of a turn of several messages: right rows, the smallest wrong ones, and the borders.

Rows are written in words, `read` gives their ids: `C` channel, `M` message, `E` end of a message, `S assistant`
what stands before the next one, `R` and `K` the ends of a turn (return, call); `x` and `y` are words, `_` a line break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge, judge_one
from draftmill.judging.structure import Channels, Structure
from draftmill.records import Completion, Reason, Thinking, Verdict

WORDS: dict[str, tuple[int, ...]] = {
    "C": (60,), "M": (61,), "E": (62,), "S": (63,), "assistant": (64,), "user": (65,), "R": (3,), "K": (4,),
    "analysis": (70,), "final": (71,), "commentary": (72, 73), "comment": (72,), "secret": (74,),
    "to=f": (75, 76), "json": (77,), "x": (11,), "y": (12,), "_": (7,), "<user>": (5,),
}  # fmt: skip
CHANNELS = Channels(next_ids=(63, 64), channel_id=60, message_id=61, reasoning=((70,),), content=((71,), (72, 73)))
PROMPT = [6, 20, 63, 64]
CUT: dict[str, Any] = {"finish_type": "length"}


def read(text: str) -> list[int]:
    return [index for word in text.split() for index in WORDS[word]]


@pytest.fixture
def structure(structure_of: Callable[..., Structure]) -> Structure:
    return structure_of(
        Thinking.OPENED_BY_MODEL,
        open_ids=(60, 70, 61),
        close_ids=(62,),
        # Derived or not: the grammar's ids are its own matter. A tokenizer may call them all role markers.
        foreign_ids=(5, 6, 60, 61, 62, 63),
        tail_ids=(63, 64),
        channels=CHANNELS,
    )


@pytest.fixture
def verdict(structure: Structure, completion_of: Callable[..., Completion]) -> Callable[..., Verdict]:
    def of(text: str, **said: Any) -> Verdict:
        completion = completion_of(PROMPT, read(text), **said)
        return judge_one(completion, structure, on_truncated="keep", degenerate="auto")

    return of


def word_at(text: str, position: int | None) -> str | None:
    """The word that holds the position, with its number among equal words when there are several; None for none."""
    if position is None:
        return None
    at, seen = len(PROMPT), dict[str, int]()
    for word in text.split():
        seen[word] = seen.get(word, 0) + 1
        at += len(WORDS[word])
        if position < at:
            return word if text.split().count(word) == 1 else f"{word}{seen[word]}"
    return "behind all"


THINK = "C analysis M x E"
GOOD: list[tuple[str, str | None]] = [
    # the row, and the word that ends its reasoning
    (f"{THINK} S assistant C final M y R", "E"),
    ("C analysis M E S assistant C final M y R", "E"),  # empty reasoning
    ("C final M y R", None),  # it never reasoned
    ("C commentary M y R", None),
    (f"{THINK} S assistant C commentary to=f json M y K", "E"),  # a tool's call behind the reasoning
    (f"{THINK} S assistant to=f C commentary json M y K", "E"),  # its recipient first
    (f"{THINK} S assistant C commentary M x E S assistant C commentary to=f M y K", "E1"),
    (f"{THINK} S assistant C commentary M x E S assistant C analysis M x E S assistant C final M y R", "E3"),
    (f"{THINK} S assistant C analysis M x E S assistant C final M y R", "E2"),
    (f"{THINK} S assistant C final M x E S assistant C commentary to=f M y K", "E1"),  # the answer, then a call
    (f"{THINK} S assistant C final M _ y _ R", "E"),
    (f"{THINK} S assistant C final M analysis comment assistant R", "E"),  # the names as words of a body
    (f"{THINK} S assistant C final json M y R", "E"),
    # a tool called on the channel of reasoning: no reasoning, it has a recipient
    ("C analysis to=f M y K", None),
    ("C analysis to=f json M y K", None),
    (f"{THINK} S assistant C analysis to=f M y K", "E"),
    (f"{THINK} S assistant to=f C analysis json M y K", "E"),
    (f"{THINK} S assistant C analysis to=f M y E S assistant C analysis M x E S assistant C final M y R", "E3"),
    (f"{THINK} S assistant C analysis to=f M y E S assistant C final M y R", "E1"),
    (f"{THINK} S assistant C final M y E S assistant C analysis to=f M y K", "E1"),
]


@pytest.mark.parametrize(("text", "reasoning_end"), GOOD)
def test_well_formed(verdict: Callable[..., Verdict], text: str, reasoning_end: str | None) -> None:
    found = verdict(text)
    assert (found.reason, found.detail, found.position) == (None, "", None)
    assert word_at(text, found.reasoning_end) == reasoning_end
    assert found.stop_id == read(text)[-1]


BAD: list[tuple[str, Reason, str]] = [
    # the row, its reason, the word that is to blame
    ("x R", Reason.REASONING_NOT_OPENED, "x"),
    ("x C analysis M x E S assistant C final M y R", Reason.REASONING_NOT_OPENED, "x1"),
    ("_ C final M y R", Reason.REASONING_NOT_OPENED, "_"),  # a header may not wait
    ("C secret M y R", Reason.REASONING_NOT_OPENED, "C"),
    ("C comment M y R", Reason.REASONING_NOT_OPENED, "C"),  # half a name
    ("C M y R", Reason.REASONING_NOT_OPENED, "C"),
    ("M y R", Reason.REASONING_NOT_OPENED, "M"),
    ("E R", Reason.REASONING_NOT_OPENED, "E"),
    ("R", Reason.REASONING_NOT_OPENED, "R"),
    # reasoning behind the answer
    ("C final M y E S assistant C analysis M x R", Reason.REASONING_REOPENED, "C2"),
    (f"{THINK} S assistant C final M y E S assistant C analysis M x E S assistant C final M y R",
     Reason.REASONING_REOPENED, "C3"),
    (f"{THINK} S assistant C final M C analysis M x R", Reason.REASONING_REOPENED, "C3"),  # in the midst of it
    # a marker where it may not be
    (f"{THINK} S assistant C secret M y R", Reason.FOREIGN_MARKER, "C2"),
    (f"{THINK} S assistant C final M x M y R", Reason.FOREIGN_MARKER, "M3"),
    ("C analysis M M x R", Reason.FOREIGN_MARKER, "M2"),
    ("C analysis C final M y R", Reason.FOREIGN_MARKER, "C2"),
    ("C analysis M x C final M y R", Reason.FOREIGN_MARKER, "C2"),  # the message before was not ended
    ("C analysis M x S assistant C final M y R", Reason.FOREIGN_MARKER, "S"),
    (f"{THINK} C final M y R", Reason.FOREIGN_MARKER, "C2"),  # ended, but nothing between
    (f"{THINK} x S assistant C final M y R", Reason.FOREIGN_MARKER, "x2"),
    (f"{THINK} R", Reason.FOREIGN_MARKER, "R"),
    (f"{THINK} E S assistant C final M y R", Reason.FOREIGN_MARKER, "E2"),
    (f"{THINK} S user C final M y R", Reason.FOREIGN_MARKER, "S"),  # another's turn
    (f"{THINK} S assistant M y R", Reason.FOREIGN_MARKER, "M2"),  # no header behind it
    (f"{THINK} S assistant x R", Reason.FOREIGN_MARKER, "R"),
    (f"{THINK} S assistant S assistant C final M y R", Reason.FOREIGN_MARKER, "S2"),
    ("C analysis E S assistant C final M y R", Reason.FOREIGN_MARKER, "E"),  # a header without a body
    (f"{THINK} S assistant C final M x <user> y R", Reason.FOREIGN_MARKER, "<user>"),
    # the end
    ("C analysis M x R", Reason.REASONING_NOT_CLOSED, "R"),
    ("C analysis R", Reason.REASONING_NOT_CLOSED, "R"),
    ("C analysis _ M x R", Reason.REASONING_NOT_CLOSED, "R"),  # white space is no recipient
    (f"{THINK} S assistant _ C analysis M x R", Reason.REASONING_NOT_CLOSED, "R"),
    ("C analysis to=f R", Reason.REASONING_NOT_CLOSED, "R"),  # a header without a body calls nobody
    ("C analysis to=f M K", Reason.EMPTY_CONTENT, "K"),
    ("C final M y E S assistant C analysis _ M x R", Reason.REASONING_REOPENED, "C2"),
    (f"{THINK} S assistant C analysis M x R", Reason.REASONING_NOT_CLOSED, "R"),
    (f"{THINK} S assistant C final M R", Reason.EMPTY_CONTENT, "R"),
    (f"{THINK} S assistant C final M _ R", Reason.EMPTY_CONTENT, "_"),
    (f"{THINK} S assistant C final R", Reason.EMPTY_CONTENT, "R"),
    (f"{THINK} S assistant C final M y E S assistant C commentary M _ R", Reason.EMPTY_CONTENT, "_"),
    ("C final M R", Reason.EMPTY_CONTENT, "R"),
    (f"{THINK} S assistant C final M y", Reason.NO_END_OF_TURN, "y"),
    (f"{THINK}", Reason.NO_END_OF_TURN, "E"),
    (f"{THINK} S assistant C final M y R R", Reason.AFTER_END_OF_TURN, "R1"),
    ("S assistant C final M y R", Reason.PROMPT_ECHO, "S"),
    ("S C final M y R", Reason.PROMPT_ECHO, "S"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason", "word"), BAD)
def test_wrong(verdict: Callable[..., Verdict], text: str, reason: Reason, word: str) -> None:
    found = verdict(text)
    assert (found.reason, word_at(text, found.position)) == (reason, word)
    assert f"[{read(text)[found.position - len(PROMPT)]}]" in found.detail  # type: ignore[operator]


@pytest.mark.parametrize("text", [row for row, _ in GOOD])
def test_a_well_formed_row_cut_anywhere_is_well_formed(
    structure: Structure, completion_of: Callable[..., Completion], text: str
) -> None:
    whole = read(text)
    for num in range(1, len(whole)):
        verdict = judge_one(
            completion_of(PROMPT, whole[:num], **CUT), structure, on_truncated="keep", degenerate="auto"
        )
        assert verdict.reason is None, (text, num, verdict.detail)


@pytest.mark.parametrize(
    ("text", "reason", "reasoning_end"),
    [
        ("C analysis M x", None, None),  # inside the reasoning
        ("C analysis M x E", None, "E"),  # behind its last id
        (f"{THINK} S", None, "E"),
        (f"{THINK} S assistant C", None, "E"),
        (f"{THINK} S assistant C comment", None, "E"),  # in the midst of a name
        (f"{THINK} S assistant C commentary M x E S assistant C analysis M x", None, None),  # inside it again
        (f"{THINK} S assistant C analysis ", None, "E"),  # a recipient may come
        (f"{THINK} S assistant C analysis to=f", None, "E"),
        (f"{THINK} S assistant C analysis to=f M", None, "E"),
        (f"{THINK} S assistant C analysis M", None, None),
        ("C", None, None),
        ("C comment", None, None),
        ("C secret", Reason.REASONING_NOT_OPENED, None),
        ("C comment x", Reason.REASONING_NOT_OPENED, None),
        (f"{THINK} S user", Reason.FOREIGN_MARKER, "E"),
        (f"{THINK} S assistant C secret", Reason.FOREIGN_MARKER, "E"),
        ("x", Reason.REASONING_NOT_OPENED, None),
    ],
)
def test_cut(verdict: Callable[..., Verdict], text: str, reason: Reason | None, reasoning_end: str | None) -> None:
    found = verdict(text, **CUT)
    assert (found.reason, word_at(text, found.reasoning_end)) == (reason, reasoning_end)


def test_in_the_midst_of_a_name_an_answer_cannot_stop(verdict: Callable[..., Verdict]) -> None:
    assert verdict("C comment", matched=None).reason is Reason.REASONING_NOT_OPENED
    assert verdict(f"{THINK} S", matched=None).reason is Reason.FOREIGN_MARKER


def test_rows_do_not_touch(structure: Structure, completion_of: Callable[..., Completion]) -> None:
    """All rows in one chunk get what each gets alone: nothing is read across a border."""
    rows = [(text, {}) for text, _ in GOOD] + [(text, {}) for text, *_ in BAD]
    rows += [(text, CUT) for text, *_ in BAD] + [("", CUT), ("C", CUT), ("analysis M x R", {})]
    completions = [completion_of(PROMPT, read(text), **said) for text, said in rows]
    together = judge(Answers.of_completions(completions), structure, on_truncated="keep", degenerate="auto")
    alone = [judge_one(c, structure, on_truncated="keep", degenerate="auto") for c in completions]
    assert [*together] == alone


def test_no_rows(structure: Structure) -> None:
    assert len(judge(Answers.of_completions([]), structure, on_truncated="keep", degenerate="auto")) == 0


def test_a_name_that_begins_with_another(structure_of: Callable[..., Structure], completion_of: Any) -> None:
    channels = Channels(next_ids=(63, 64), channel_id=60, message_id=61, reasoning=((72,),), content=((71,), (72, 73)))
    structure = structure_of(Thinking.OPENED_BY_MODEL, close_ids=(62,), tail_ids=(63, 64), channels=channels)
    for text, reason in (("C comment M x R", Reason.REASONING_NOT_CLOSED), ("C commentary M x R", None)):
        completion = completion_of(PROMPT, read(text))
        assert judge_one(completion, structure, on_truncated="keep", degenerate="auto").reason is reason
