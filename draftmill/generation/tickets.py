"""A row on its way through the pool, and what became of the rows of one call.

Rows of one call of `Pool.ask` share an `Asked` and an event, which is set when
the last of them is settled.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from draftmill.records import Answer, Completion, Failure, Row


@dataclass(slots=True)
class Asked:
    """What became of the rows of one call of `ask`: each stands in exactly one list.

    `tokens`: output tokens that came for them, also for those that are not finished.
    """

    completions: list[Completion] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    pending: list[Row] = field(default_factory=list)
    tokens: int = 0

    def __len__(self) -> int:
        return len(self.completions) + len(self.failures) + len(self.pending)


@dataclass(order=True, slots=True)
class Ticket:
    """A row on its way; tickets are ordered by (chunk, number), those that a full server refused behind the others.

    `refused`: how often that was; `refusals`: those of them by a server that had answered other rows since the last;
    `answers`: what each server had answered then. `prior`: the answer it goes on from; `sent`: how often it reached
    a server; `tries`: how often it was answered wrongly; `resent`: its present try was sent twice, over an old
    connection first; `avoid`: the URL that answered wrongly last; `void`: nobody waits for it any more.
    """

    refused: int = field(default=0, init=False)
    order: tuple[int, int]
    row: Row = field(compare=False)
    asked: Asked = field(compare=False)
    settled: asyncio.Event = field(compare=False)
    num_rows: int = field(compare=False)
    prior: Answer | None = field(default=None, compare=False)
    granted: bool = field(default=False, compare=False)
    sent: int = field(default=0, compare=False)
    tries: int = field(default=0, compare=False)
    resent: bool = field(default=False, compare=False)
    refusals: int = field(default=0, compare=False)
    answers: dict[str, int] = field(default_factory=dict, compare=False)
    avoid: str | None = field(default=None, compare=False)
    void: bool = field(default=False, compare=False)

    def refuse(self, url: str, answers: int) -> None:
        """The server at `url`, which has answered `answers` rows so far, was too full for it."""
        self.refused += 1
        self.refusals += answers > self.answers.get(url, answers)
        self.answers[url] = answers

    def settle(self, result: Completion | Failure | None) -> None:
        """The row's end, once: a completion, a failure, or None for pending."""
        match result:
            case Completion():
                self.asked.completions.append(result)
            case Failure():
                self.asked.failures.append(result)
            case None:
                self.asked.pending.append(self.row)
        if len(self.asked) == self.num_rows:
            self.settled.set()
