"""What is left of an answer that went through a chat API: its text, tokenized again.

The one place that decodes and encodes, to show why no other does. It is made as
kind as can be: the text comes back complete, reasoning and content apart, and
only what a reasoning parser takes away is gone (markers, outer white space).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Difference:
    """`produced` ids, from output id `at` on, became `again` (either may be empty)."""

    at: int
    produced: tuple[int, ...]
    again: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer as a chat API returns it."""

    reasoning: str
    content: str


def parsed(tokenizer: PreTrainedTokenizerBase, reasoning_ids: Sequence[int], content_ids: Sequence[int]) -> ChatAnswer:
    """The two texts that a reasoning parser makes of an answer."""
    return ChatAnswer(str(tokenizer.decode(reasoning_ids)).strip(), str(tokenizer.decode(content_ids)).strip())


def again(
    tokenizer: PreTrainedTokenizerBase, answer: ChatAnswer, *, close: Sequence[int] = (), end: Sequence[int] = ()
) -> tuple[int, ...]:
    """The texts' ids. `close`, `end`: markers that somebody puts back by hand."""
    reasoning_ids = tokenizer.encode(answer.reasoning, add_special_tokens=False)
    content_ids = tokenizer.encode(answer.content, add_special_tokens=False)
    return (*reasoning_ids, *close, *content_ids, *end)


def differences(produced: Sequence[int], other: Sequence[int]) -> list[Difference]:
    """Where two sequences of ids part, in order."""
    matcher = SequenceMatcher(None, produced, other, autojunk=False)
    return [
        Difference(i1, tuple(produced[i1:i2]), tuple(other[j1:j2]))
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
