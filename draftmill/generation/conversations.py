"""Conversations turn by turn: each turn is asked as soon as the one it stands on has come, all side by side.

A chunk's planned rows in, what became of each out. Turns that several rows share
(conversations that begin alike) are asked once. What stands on a bad turn, on one
that was cut by length or on one that leaves no room is not asked: where history
is extended, the row ends there with its turns so far; where it is rewritten, the
later rows fail, with words that name the turn (the first is turn 1).

Whatever comes is kept by `ask` under the turn's own key, so that another run
goes on at the first turn that is missing. Where history is extended, an earlier
turn is taken from there in its newest attempt that can be stood on, of the same
weights and with today's budget; one that can be taken in no attempt is asked, as
the next. Judging and rendering are done in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from draftmill.generation.attempts import Attempts, with_weights
from draftmill.generation.continuing import STOP
from draftmill.generation.rolling import Judge
from draftmill.generation.tickets import Asked
from draftmill.records import Completion, Failure, HistoryMode, Row, Said, Span, Verdict

Key = tuple[str, int]
"""(row_key, attempt): the identity of a request."""


class Over(Protocol):
    """Why nothing can be asked behind a turn."""

    @property
    def words(self) -> str: ...


Ask = Callable[[Row, bool], Awaitable[Asked]]
"""Asks for one row; whether it is the first request of its conversation in this run."""

NextTurn = Callable[[Row, Sequence[Said]], Row | Over]
"""A planned turn with the ids it is sent with, on top of the turns before it; the last of them is enough where history
is extended."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a conversation ends early although its last turn is good. `turn`: how many turns it has."""

    turn: int
    words: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What became of a turn: `completion`; without one `failure`, or neither where the run stopped before.

    `cause`: a failure as those who stand on the turn are told of it. `asked`: a request of this run brought it.
    `over`: nothing more is asked behind; `ended`: why not, where neither its reason nor its length tells.
    """

    completion: Completion | None = None
    failure: str | None = None
    cause: str | None = None
    asked: bool = False
    over: bool = False
    ended: Ended | None = None

    @classmethod
    def failed(cls, words: str, cause: str | None = None) -> Turn:
        return cls(failure=words, cause=cause or words)


@dataclass(slots=True)
class Outcome:
    """A chunk's rows, each in exactly one list, and all requests that were made for them (`earlier`: of turns that are
    no rows). `ended`: the rows with fewer turns than the source has, although nothing of them is bad."""

    resumed: list[Completion]
    generated: list[Completion]
    failures: list[Failure]
    pending: list[Row]
    earlier: list[Completion]
    ended: list[tuple[Row, Ended]] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0


class Conversations:
    """The rows of one chunk. `known`: what is there already, by request; `sealed`: turns in shards, by row_key;
    `weight_versions`: what the servers say of themselves."""

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        ask: Ask,
        judge: Judge,
        next_turn: NextTurn,
        known: Mapping[Key, Completion],
        sealed: Mapping[str, Said],
        weight_versions: Collection[str | None],
    ) -> None:
        self._rows = {row.row_key: row for row in rows}
        self._ask_one = ask
        self._judge = judge
        self._next_turn = next_turn
        self._known = known
        self._attempts = Attempts(known.values(), weight_versions)
        self._sealed = sealed
        self._turns: dict[Key, asyncio.Task[Turn]] = {}
        self._said: dict[Key, Said | str] = {}
        self._begun: set[str] = set()
        self._out = Outcome([], [], [], [], [])

    async def outcome(self) -> Outcome:
        """All rows. Raises what goes wrong in one of them, and then asks for nothing more."""
        try:
            turns = await asyncio.gather(*(self._turn(row) for row in self._rows.values()))
        finally:
            for task in self._turns.values():
                task.cancel()
            await asyncio.gather(*self._turns.values(), return_exceptions=True)
        for row, turn in zip(self._rows.values(), turns, strict=True):
            self._settle(row, turn)
        return self._out

    def _settle(self, row: Row, turn: Turn) -> None:
        if turn.completion is not None:
            completion = Completion(_at(row, turn.completion.row), turn.completion.answer)
            (self._out.generated if turn.asked else self._out.resumed).append(completion)
            if turn.ended is not None:
                self._out.ended.append((row, turn.ended))
        elif turn.failure is not None:
            self._out.failures.append(Failure(row, turn.failure, 1))
        else:
            self._out.pending.append(row)

    def _turn(self, row: Row) -> asyncio.Task[Turn]:
        """The turn of a row, or of an earlier turn of one: the same task for all who stand on it."""
        if row.key not in self._turns:
            self._turns[row.key] = asyncio.create_task(self._run(row))
        return self._turns[row.key]

    async def _run(self, row: Row) -> Turn:
        extends = row.history is HistoryMode.EXTENDS
        if row.whole is not None:
            planned = self._rows.get(row.row_key)
            if planned is not None and planned.attempt >= row.attempt:
                return await self._turn(planned)
            if (there := await asyncio.to_thread(self._there, row)) is not None:
                return Turn(there)
        elif (known := self._known.get(row.key)) is not None:
            answer = self._attempts.answer(known)
            return Turn(Completion(_at(row, known.row), answer), over=extends and len(known.row.spans) < row.turn)
        if not row.earlier:
            return await self._ask(row)
        if extends:
            return await self._extended(row)
        stands = await self._stands(row)
        if isinstance(stands, Turn):
            return stands
        step = await asyncio.to_thread(self._step, row, stands)
        return await self._ask(step) if isinstance(step, Row) else Turn.failed(_words(step))

    async def _extended(self, row: Row) -> Turn:
        before = await self._turn(_earlier(row))
        if before.completion is None or before.over:
            return before
        step = await asyncio.to_thread(self._step, row, [before.completion])
        if isinstance(step, Row):
            return await self._ask(step, before.completion.answer.weight_version)
        return replace(before, over=True, ended=step if isinstance(step, Ended) else None)

    def _there(self, row: Row) -> Completion | None:
        """In a thread: an earlier turn as it was generated before; None: it is to be asked.

        A newer bad attempt does not shadow a good one. Where all are bad the newest is taken: a bad turn is asked
        again where its reason is named, not because its conversation has grown.
        """
        found = [
            Completion(replace(_at(row, known.row), attempt=known.row.attempt), self._attempts.answer(known))
            for known in self._attempts.usable(row)
        ]
        good = (completion for completion in found if isinstance(self._judged(completion), Said))
        return next(good, found[0] if found else None)

    async def _stands(self, row: Row) -> list[Completion | Said] | Turn:
        """The turns that a row of rewritten history stands on; what becomes of the row where one has no answer."""
        stands: list[Completion | Said] = []
        for number, key in enumerate(row.earlier, 1):
            if key in self._rows:
                turn = await self._turn(self._rows[key])
                if turn.completion is None:
                    return Turn() if turn.cause is None else Turn.failed(turn.cause)
                stands.append(turn.completion)
            elif key in self._sealed:
                stands.append(self._sealed[key])
            else:
                return Turn.failed(f"turn {number} of this conversation is gone with the object that held it")
        return stands

    def _step(self, row: Row, stands: Sequence[Completion | Said]) -> Row | Ended | str:
        """In a thread: the row as it is sent; why nothing can be asked; which turn it cannot stand on and why."""
        first_number = row.turn - len(stands) + 1
        said: list[Said] = []
        for number, base in enumerate(stands, first_number):
            found = base if isinstance(base, Said) else self._judged(base)
            if isinstance(found, str):
                return f"turn {number} of this conversation {found}"
            said.append(found)
        step = self._next_turn(row, said)
        return step if isinstance(step, Row) else Ended(row.turn, step.words)

    def _judged(self, completion: Completion) -> Said | str:
        key = completion.row.key
        if key not in self._said:
            self._said[key] = said_of(completion, self._judge([completion])[0])
        return self._said[key]

    async def _ask(self, row: Row, weights_before: str | None = None) -> Turn:
        if row.whole is not None:
            row = replace(row, attempt=self._attempts.next_of(row))
        root = row.earlier[0] if row.earlier else row.row_key
        first = root not in self._begun
        self._begun.add(root)
        asked = await self._ask_one(row, first)
        self._out.output_tokens += asked.tokens
        if asked.failures:
            words = asked.failures[0].words
            return Turn.failed(words, f"turn {row.turn + 1} of this conversation failed: {words}")
        if asked.pending:
            return Turn()
        completion = asked.completions[0]
        if completion.row.spans:
            completion = with_weights(completion, weights_before)
        self._out.prompt_tokens += len(completion.row.prompt_ids)
        if completion.row.whole is not None:
            self._out.earlier.append(completion)
        return Turn(completion, asked=True)


def said_of(completion: Completion, verdict: Verdict) -> Said | str:
    """A turn as later ones stand on it; in words, why none can."""
    row, answer = completion.row, completion.answer
    if verdict.reason is not None:
        return f"is {verdict.reason}: {verdict.detail}" if verdict.detail else f"is {verdict.reason}"
    if answer.finish_type != STOP:
        return "was cut by length"
    start = len(row.prompt_ids)
    end = start + len(answer.output_ids)
    span = Span(start, end, verdict.reasoning_end, answer.finish_type, verdict.stop_id)
    return Said(row.prompt_ids, row.spans, answer.output_ids, span)


def _words(step: Ended | str) -> str:
    return step if isinstance(step, str) else f"nothing can be asked behind turn {step.turn}: {step.words}"


def _earlier(row: Row) -> Row:
    """The turn before a row that extends its history, as it is asked and kept. A first turn has its prompt already."""
    return replace(row, row_key=row.earlier[-1], earlier=row.earlier[:-1], whole=row.whole or row.row_key)


def _at(row: Row, asked: Row) -> Row:
    """A planned row as far as it came: today's place in the source, the ids and bounds it was asked with."""
    return replace(
        row,
        prompt_ids=asked.prompt_ids,
        spans=asked.spans,
        room=asked.room,
        max_new_tokens=asked.max_new_tokens,
        conversation=None,
    )
