"""Answers with random faults: well-formed ones of a structure first, then cut, swapped, duplicated, inserted, stripped.

Seeded: the same seed gives the same rows. What is put in is mostly what the
rules are about (markers in each of their forms, ends, role markers, ids of the
prompt's tail), since a random id of a large vocabulary breaks no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from draftmill.judging.structure import Form, Structure
from draftmill.records import Completion, Thinking

Make = Callable[..., Completion]
MOST_FAULTS = 3
SHARE_CLEAN = 0.15
SHARE_CUT_BY_LENGTH = 0.12
SHARE_ODD_EXCHANGE = 0.06
SHARE_CALLS = 0.2
SHARE_MARKERS = 0.95
"""Of what is inserted; the rest are words."""


class Fuzzer:
    """`completion_of` is the fixture; `words`: ordinary ids; `prompt`: ids of a prompt that ends in the tail."""

    def __init__(
        self,
        rng: np.random.Generator,
        structure: Structure,
        completion_of: Make,
        *,
        prompt: Sequence[int],
        words: Sequence[int],
    ) -> None:
        self.rng, self.structure, self.completion_of, self.prompt = rng, structure, completion_of, prompt
        self.words = list(words)
        self.pool = pool_of(structure)
        self.control = {i for item in self.pool for i in item} - set(words)

    def rows(self, number: int) -> list[Completion]:
        return [self.row() for _ in range(number)]

    def row(self) -> Completion:
        out = self.well_formed()
        if self.rng.random() >= SHARE_CLEAN:
            for _ in range(self.rng.integers(0, MOST_FAULTS + 1)):
                out = self.faulty(out)
        return self.completion_of(self.prompt, out, **self.exchange(out))

    def well_formed(self) -> list[int]:
        """What a good answer looks like."""
        structure = self.structure
        if structure.channels is not None:
            return self._messages()
        reasoning: list[int] = []
        if structure.thinking is Thinking.OPENED_BY_MODEL:
            reasoning += self.blanks() + self.one(structure.opens)
        if structure.thinking in (Thinking.OPENED_BY_MODEL, Thinking.OPENED_BY_PROMPT):
            reasoning += self.said(0) + self.one(structure.closes)
        return [*reasoning, *self.blanks(), *self.said(1), self.pick(structure.end_ids)]

    def _messages(self) -> list[int]:
        """A turn of several messages: reasoning, perhaps more of it, then content."""
        structure, channels = self.structure, self.structure.channels
        assert channels is not None
        names = [self.one(channels.reasoning) for _ in range(self.rng.integers(0, 3))] + [self.one(channels.content)]
        names = [[*name, *self.recipient()] for name in names]
        bodies = [[channels.channel_id, *name, channels.message_id, *self.said(1)] for name in names]
        out = bodies[0]
        for body in bodies[1:]:
            out = [*out, *structure.close_ids, *channels.next_ids, *body]
        return [*out, self.pick(structure.end_ids)]

    def recipient(self) -> list[int]:
        return self.said(0)[:2] if self.rng.random() < SHARE_CALLS else []

    def faulty(self, out: list[int]) -> list[int]:
        """`out` with one fault more."""
        faults = [self.cut, self.leave_out, self.swap, self.duplicate, self.echo] + [self.insert, self.strip] * 2
        return faults[self.rng.integers(len(faults))](out)

    def cut(self, out: list[int]) -> list[int]:
        return out[: self.place(out)]

    def leave_out(self, out: list[int]) -> list[int]:
        """Without a slice of it."""
        start, end = sorted((self.place(out), self.place(out)))
        return out[:start] + out[end:]

    def swap(self, out: list[int]) -> list[int]:
        swapped = list(out)
        if out:
            a, b = self.rng.integers(0, len(out), 2)
            swapped[a], swapped[b] = out[b], out[a]
        return swapped

    def duplicate(self, out: list[int]) -> list[int]:
        start = self.place(out)
        end = min(len(out), start + int(self.rng.integers(1, 7)))
        at = self.place(out)
        return [*out[:at], *out[start:end], *out[at:]]

    def insert(self, out: list[int]) -> list[int]:
        at = self.place(out)
        what = self.one(self.pool) if self.rng.random() < SHARE_MARKERS else [self.pick(self.words)]
        return [*out[:at], *what, *out[at:]]

    def strip(self, out: list[int]) -> list[int]:
        """Without one id, or without one kind of id altogether, as a parser between model and answer does it."""
        if not out:
            return out
        gone = self.pick(out)
        if self.rng.random() < 0.3:
            at = self.place(out)
            return out[:at] + out[at + 1 :]
        control = [i for i in out if i in self.control]
        gone = self.pick(control) if control else gone
        return [i for i in out if i != gone]

    def echo(self, out: list[int]) -> list[int]:
        """The prompt's end again in front, or an id of it."""
        tail = self.prompt[-int(self.rng.integers(1, 6)) :]
        return [*(tail if self.rng.random() < 0.7 else [self.pick(tail)]), *out]

    def exchange(self, out: list[int]) -> dict[str, Any]:
        """How the answer ended and what the server said about it; mostly the truth."""
        draw = self.rng.random()
        if draw < SHARE_CUT_BY_LENGTH:
            return {"finish_type": "length"}
        if draw > SHARE_CUT_BY_LENGTH + SHARE_ODD_EXCHANGE:
            return {}
        odd: list[dict[str, Any]] = [
            {"finish_type": "abort"},
            {"matched": "NaN happened"},
            {"matched": "###"},
            {"matched": self.pick(self.structure.end_ids)},
            {"matched": None},
            {"prompt_tokens": len(self.prompt) - 1},
            {"completion_tokens": len(out) + 1},
            {"finish_type": "length", "finish_length": len(out) + 1},
            {"max_new_tokens": max(1, len(out) - 1)},
            {"completion_tokens": None, "prompt_tokens": None},
        ]
        return odd[self.rng.integers(len(odd))]

    def said(self, at_least: int) -> list[int]:
        number = int(self.rng.integers(at_least, 12))
        return [self.words[i] for i in self.rng.integers(0, len(self.words), number).tolist()]

    def blanks(self) -> list[int]:
        some = self.structure.blank_ids
        return [self.pick(some) for _ in range(self.rng.integers(0, 3))] if some else []

    def one(self, forms: Sequence[Form]) -> list[int]:
        form = forms[int(self.rng.integers(len(forms)))]
        return [ids if isinstance(ids, int) else self.pick(ids) for ids in form]

    def pick(self, ids: Sequence[int]) -> int:
        return ids[int(self.rng.integers(len(ids)))]

    def place(self, out: list[int]) -> int:
        return int(self.rng.integers(0, len(out) + 1))


def pool_of(structure: Structure) -> list[tuple[int, ...]]:
    """What is worth inserting: markers several times over."""
    ids = [*structure.end_ids, *structure.foreign_ids, *structure.tail_ids, *structure.blank_ids[:3]]
    odd = [structure.highest_id, structure.highest_id + 1, -1]
    forms = [*structure.opens, *structure.closes]
    markers = [tuple(i if isinstance(i, int) else i[which] for i in form) for form in forms for which in (0, -1)] * 2
    if structure.channels is not None:
        channels = structure.channels
        markers += [(channels.channel_id,), (channels.message_id,), channels.next_ids] * 3
        markers += [*channels.reasoning, *channels.content] * 3
    return [*markers, *((i,) for i in [*ids, *odd])]
