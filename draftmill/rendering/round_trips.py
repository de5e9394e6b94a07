"""Does every marker map to its id and back?

The grammar of answers is written in ids (judging/structure.py). An id whose
token maps to another id, or to none, would make every rule that names it look
for the wrong thing. Local half of the question; the gate asks a server for the
other half where the marker is a token of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from draftmill.judging.structure import Structure


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """An id and what became of it: its `token`, the id that token maps to, and its text for a server.

    `kind`: what the structure has it for. `token` None: the tokenizer does not
    know the id. `alone`: a text that has exactly this id by itself; None when
    there is none (a piece of a longer marker, or half a character).
    """

    kind: str
    id: int
    token: str | None
    back: int | None
    alone: str | None

    @property
    def holds(self) -> bool:
        return self.back == self.id


def round_trips(tokenizer: PreTrainedTokenizerBase, structure: Structure) -> tuple[RoundTrip, ...]:
    """Every id the structure names, once, and the highest id."""
    kinds = {
        "opens the reasoning": structure.open_ids,
        "closes the reasoning": structure.close_ids,
        "ends the turn": structure.end_ids,
        "role or turn marker": structure.foreign_ids,
        "highest id": (structure.highest_id,),
    }
    named: dict[int, str] = {}
    for kind, ids in kinds.items():
        for index in ids:
            named.setdefault(index, kind)
    return tuple(_round_trip(tokenizer, index, kind) for index, kind in named.items())


def _round_trip(tokenizer: PreTrainedTokenizerBase, index: int, kind: str) -> RoundTrip:
    token = tokenizer.convert_ids_to_tokens(index)
    if not isinstance(token, str):
        return RoundTrip(kind, index, None, None, None)
    back = tokenizer.convert_tokens_to_ids(token)
    added = tokenizer.added_tokens_decoder.get(index)
    text = str(added) if added is not None else str(tokenizer.decode([index], skip_special_tokens=False))
    alone = text if tokenizer.encode(text, add_special_tokens=False) == [index] else None
    return RoundTrip(kind, index, token, back if isinstance(back, int) else None, alone)
