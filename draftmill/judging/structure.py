"""The grammar of a model's output on ids, as data.

Derived once per run from tokenizer and template (the structures shelf), stored
in the manifest, applied by `judge`. Nothing in it names a model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from draftmill.records import Thinking


@dataclass(frozen=True, slots=True)
class Structure:
    """What a well-formed answer looks like.

    `open_ids`, `close_ids`: the marker (one id or several) that opens and
    closes the reasoning; empty for plain models. `end_ids`: any of them ends
    the turn. `foreign_ids`: role and turn markers that never stand inside an
    answer. `tail_ids`: what the template adds behind the conversation to make
    the model speak. `blank_ids`: ids that are white space only. `highest_id`:
    the largest id the tokenizer knows (its `len` counts no holes).
    """

    name: str
    thinking: Thinking
    open_ids: tuple[int, ...]
    close_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    foreign_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    blank_ids: tuple[int, ...]
    highest_id: int
    evidence: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it: lists for tuples."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Structure:
        """The inverse of `to_json`. Raises KeyError or ValueError for another mapping."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**{**fields, "thinking": Thinking(data["thinking"])})
