"""What the fake server answers: from a script, or from a seed.

An answer is what a model would say if the budget were endless; the fake cuts it
at the first stop id and at the granted budget, and gives the finish reason that
is true then. Seeded answers depend on the seed and the prompt's ids alone, so
that any process, any order and any number of slots gives the same ids.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from draftmill.serving.answers import Generated, ran_out, stopped
from draftmill.serving.protocol import GenerateRequest

LOOK_BACK = 4
"""How far before the prompt's end an open marker may stand (templates put line breaks behind it)."""


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """`output_ids` in full, the end id included. `matched` None is the last id; a text stands for a stop string."""

    output_ids: Sequence[int]
    matched: int | str | None = None


Answers = Callable[[GenerateRequest], FakeAnswer]


@dataclass(frozen=True, slots=True)
class Markers:
    """The ids of a think block and of the end of a turn; `open_id` and `close_id` None is a model that never thinks."""

    open_id: int | None = None
    close_id: int | None = None
    end_id: int = 2


@dataclass(frozen=True, slots=True)
class Seeded:
    """Answers of ordinary ids, shaped by `markers`: [open?, reasoning..., close, content..., end].

    The open marker is written unless the prompt ends with it; behind a prompt that closed its block there is no
    reasoning. `ordinary` are the ids to draw from, `lengths` the least and greatest number of drawn ids.
    """

    seed: int = 0
    markers: Markers = Markers()
    ordinary: range = range(100, 1000)
    lengths: tuple[int, int] = (8, 64)

    def __call__(self, request: GenerateRequest) -> FakeAnswer:
        dice = random.Random(prompt_number(self.seed, request.prompt_ids))
        special = {self.markers.open_id, self.markers.close_id, self.markers.end_id}
        draws = (dice.choice(self.ordinary) for _ in range(dice.randint(*self.lengths)))
        drawn = [token_id for token_id in draws if token_id not in special]
        half = len(drawn) // 2
        return FakeAnswer([*self._thought(request.prompt_ids, drawn[:half]), *drawn[half:], self.markers.end_id])

    def _thought(self, prompt_ids: tuple[int, ...], drawn: list[int]) -> list[int]:
        open_id, close_id = self.markers.open_id, self.markers.close_id
        tail = prompt_ids[-LOOK_BACK:]
        if close_id is None or close_id in tail:
            return []
        opened = open_id is None or open_id in tail
        return [*drawn, close_id] if opened or open_id is None else [open_id, *drawn, close_id]


def by_prompt(script: Mapping[tuple[int, ...], FakeAnswer | Sequence[int]]) -> Answers:
    """Answers looked up by the prompt's ids; KeyError (a 500) for a prompt that is not in the script."""
    return lambda request: _as_answer(script[request.prompt_ids])


def in_order(script: Sequence[FakeAnswer | Sequence[int]]) -> Answers:
    """One answer after another, in the order in which requests start; the last one is repeated."""
    rest = list(script)

    def answer(_: GenerateRequest) -> FakeAnswer:
        return _as_answer(rest.pop(0) if len(rest) > 1 else rest[0])

    return answer


def finished(request: GenerateRequest, answer: FakeAnswer) -> Generated:
    """The answer as this request gets it: cut at the first stop id, then at the budget."""
    ids = list(answer.output_ids)
    end = next((index for index, token_id in enumerate(ids) if token_id in request.stop_ids), None)
    matched = answer.matched
    if end is not None:
        ids, matched = ids[: end + 1], None
    if len(ids) > request.budget or (not ids and matched is None):
        cut = ids[: request.budget]
        return Generated(tuple(cut), ran_out(len(cut)))
    return Generated(tuple(ids), stopped(ids[-1] if matched is None else matched))


def _as_answer(item: FakeAnswer | Sequence[int]) -> FakeAnswer:
    return item if isinstance(item, FakeAnswer) else FakeAnswer(item)


def prompt_number(seed: int, prompt_ids: tuple[int, ...]) -> int:
    """A number that depends on both and on nothing else; `hash` would differ between processes."""
    data = f"{seed}:".encode() + np.asarray(prompt_ids, "<i8").tobytes()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
