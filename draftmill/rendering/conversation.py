"""A conversation whose assistant turns are all asked anew: where each stands and what it is asked behind.

Every recorded assistant message marks a turn, several side by side one turn;
a conversation that does not end with one has one more turn at its end. What the
source has before the first turn stays as it is. A recorded tool result belongs
to the recorded call, so that nothing is asked behind one.

Pure: messages in, messages out. Rendering, keys of rows and what the model said
are others' business (`render`, `identity`, `next_turn`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftmill import identity

Message = dict[str, Any]

ASSISTANT, TOOL, USER = "assistant", "tool", "user"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A source conversation. `cuts`: for each turn to be asked, the index of the message that it stands in place of."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    cuts: tuple[int, ...]

    @classmethod
    def of(cls, messages: list[Message], tools: list[dict[str, Any]] | None) -> Conversation:
        """The conversation of canonical messages."""
        return cls(messages, tools, cuts(messages))

    @classmethod
    def parse(cls, canonical: str) -> Conversation:
        """The conversation of a row's `conversation`: the JSON of `{"messages": ..., "tools": ...}`."""
        source = json.loads(canonical)
        return cls.of(source["messages"], source.get("tools"))

    def __len__(self) -> int:
        return len(self.cuts)

    def asked(self, turn: int, said: Sequence[Message]) -> list[Message]:
        """What a turn is asked behind; `said`: one assistant message for each turn before it."""
        messages = self.messages[: self.cuts[0]]
        for number in range(turn):
            messages = [*messages, said[number], *self.between(number)]
        return messages

    def later(self, turn: int) -> list[list[Message]]:
        """The source's messages behind each turn before this one, the assistant's left out."""
        return [self.between(number) for number in range(turn)]

    def prompt_key(self, turn: int, variant: str) -> str:
        """Identity of what a turn is asked behind, as far as the source decides it: never that of another's first."""
        return identity.prompt_key(self.messages[: self.cuts[0]], self.tools, variant, self.later(turn))

    def between(self, turn: int) -> list[Message]:
        """The source's messages behind one turn and before the next."""
        behind = self.messages[self.cuts[turn] : self.cuts[turn + 1]]
        return [message for message in behind if message["role"] != ASSISTANT]


def cuts(messages: Sequence[Message]) -> tuple[int, ...]:
    """Where assistant turns are asked anew: indices of the messages they replace, or the number of all at the end."""
    found: list[int] = []
    has_user, before = False, ""
    for index, message in enumerate(messages):
        role = message["role"]
        if role == TOOL and found:
            return tuple(found)
        if role == ASSISTANT and before != ASSISTANT and has_user:
            found.append(index)
        has_user |= role == USER
        before = role
    if has_user and before != ASSISTANT:
        found.append(len(messages))
    return tuple(found)
