"""What the fake server answers: from a script, or from a seed.

An answer is what a model would say if the budget were endless; the fake cuts it
at the first stop id and at the granted budget, and gives the finish reason that
is true then. Seeded answers depend on the seed and the prompt's ids alone, so
that any process, any order and any number of slots gives the same ids.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from draftmill.serving.answers import Generated, ran_out, stopped
from draftmill.serving.protocol import GenerateRequest

LOOK_BACK = 4
"""How far before the prompt's end an open marker may stand (templates put line breaks behind it)."""

NUMBER_BYTES = 8
"""Bytes of a seeded number, before the bytes of the ids."""

TINY = 2.0**-53
"""The share at which the tail of a LogNormal ends: 8.2 sigmas, beyond any number of rows."""

_NORMAL = NormalDist()


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
class LogNormal:
    """Lengths as real answers have them: half below `median`, a few very long ones. `sigma` of the logarithm."""

    median: int
    sigma: float

    def length(self, share: float) -> int:
        """The length below which this share (0 to 1) of all answers stays, in ids."""
        within = min(max(share, TINY), 1 - TINY)
        return max(1, round(self.median * math.exp(self.sigma * _NORMAL.inv_cdf(within))))


@dataclass(frozen=True, slots=True)
class Seeded:
    """Answers of ordinary ids, shaped by `markers`: [open?, reasoning..., close, content..., end].

    The open marker is written unless the prompt ends with it; behind a prompt that closed its block there is no
    reasoning. `ordinary` are the ids to draw from. `lengths` are the least and greatest number of ids of a whole
    answer, markers included, each as likely; or a LogNormal.
    """

    seed: int = 0
    markers: Markers = Markers()
    ordinary: range = range(100, 1000)
    lengths: tuple[int, int] | LogNormal = (8, 64)

    def __call__(self, request: GenerateRequest) -> FakeAnswer:
        # Not numpy's generators nor `random`: this stream is fixed by a standard, is fast, and no release changes it.
        dice = hashlib.shake_256(_seed_bytes(self.seed, request.prompt_ids))
        length = self._length(int.from_bytes(dice.digest(NUMBER_BYTES), "little") / 2**64)
        before, after = self._thought(request.prompt_ids)
        count = max(0, length - len(before) - len(after) - 1)
        stream = np.frombuffer(dice.digest(NUMBER_BYTES + 4 * count), "<u4", offset=NUMBER_BYTES)
        choices = _choices(self.ordinary, self.markers)
        drawn = choices[stream % len(choices)].tolist()
        half = count // 2 if after else 0
        return FakeAnswer([*before, *drawn[:half], *after, *drawn[half:], self.markers.end_id])

    def _length(self, share: float) -> int:
        if isinstance(self.lengths, LogNormal):
            return self.lengths.length(share)
        least, greatest = self.lengths
        return min(greatest, least + int(share * (greatest - least + 1)))

    def _thought(self, prompt_ids: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """What opens and what closes the reasoning; nothing closes it where there is none."""
        open_id, close_id = self.markers.open_id, self.markers.close_id
        tail = prompt_ids[-LOOK_BACK:]
        if close_id is None or close_id in tail:
            return [], []
        return [] if open_id is None or open_id in tail else [open_id], [close_id]


@functools.cache
def _choices(ordinary: range, markers: Markers) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The ids to draw from, without the markers."""
    special = [marker for marker in (markers.open_id, markers.close_id, markers.end_id) if marker is not None]
    ids = np.arange(ordinary.start, ordinary.stop, ordinary.step, dtype=np.int32)
    return ids[~np.isin(ids, special)]


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
    end = min((ids.index(stop) for stop in request.stop_ids if stop in ids), default=None)
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
    return int.from_bytes(hashlib.sha256(_seed_bytes(seed, prompt_ids)).digest()[:NUMBER_BYTES], "big")


def _seed_bytes(seed: int, prompt_ids: tuple[int, ...]) -> bytes:
    return f"{seed}:".encode() + np.asarray(prompt_ids, "<i8").tobytes()
