"""What is left of an answer that went through a chat API: its text, tokenized again.

With the report's round trip (reporting/page/round_trip.py) the one place that decodes
and encodes, to show why no other does. `losses` goes
from the kindest text there could be, complete and with every marker put back, to
what servers and templates really leave of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Produced:
    """What the model produced: reasoning, the marker that closes it, content, the id that ends the turn."""

    reasoning_ids: tuple[int, ...]
    close_id: int
    content_ids: tuple[int, ...]
    end_id: int

    @property
    def ids(self) -> tuple[int, ...]:
        return (*self.reasoning_ids, self.close_id, *self.content_ids, self.end_id)


@dataclass(frozen=True, slots=True)
class Loss:
    """One way to get ids from text: its name, the ids it gives, and where these are not the model's.

    `more`: the differences that the way before it did not have.
    """

    name: str
    ids: tuple[int, ...]
    differences: tuple[Difference, ...]
    more: tuple[Difference, ...]

    @property
    def num_wrong(self) -> int:
        """Ids of the model's that this way does not give back at their place."""
        return sum(len(difference.produced) for difference in self.differences)


def parsed(tokenizer: PreTrainedTokenizerBase, reasoning_ids: Sequence[int], content_ids: Sequence[int]) -> ChatAnswer:
    """The two texts that a reasoning parser makes of an answer."""
    return ChatAnswer(str(tokenizer.decode(reasoning_ids)).strip(), str(tokenizer.decode(content_ids)).strip())


def losses(
    tokenizer: PreTrainedTokenizerBase, produced: Produced, *, rendered: Mapping[str, tuple[int, ...]]
) -> list[Loss]:
    """The ways in which text is not what the model produced.

    `rendered`: output ids that a chat template makes of the answer as a message, by a name for each way to ask it.
    """
    found: list[Loss] = []
    for name, ids in (*_ways(tokenizer, produced), *rendered.items()):
        here = differences(produced.ids, ids)
        known = found[-1].differences if found else ()
        found.append(Loss(name, ids, tuple(here), tuple(one for one in here if one not in known)))
    return found


def _ways(tokenizer: PreTrainedTokenizerBase, produced: Produced) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each loses what the ones before it lose, and something more."""
    whole = ChatAnswer(str(tokenizer.decode(produced.reasoning_ids)), str(tokenizer.decode(produced.content_ids)))
    answer = parsed(tokenizer, produced.reasoning_ids, produced.content_ids)
    close, end = [produced.close_id], [produced.end_id]
    yield "pieces merged", again(tokenizer, whole, close=close, end=end)
    yield "white space stripped", again(tokenizer, answer, close=close, end=end)
    yield "markers gone", again(tokenizer, answer)
    yield "reasoning null", again(tokenizer, ChatAnswer("", answer.content))


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
