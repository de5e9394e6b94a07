"""The grammar of a model's output on ids, as data.

Derived once per run and variant from tokenizer and template (the structures
shelf), stored in the manifest, applied by `judge`. Nothing in it names a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from draftmill.arrays import Ids
from draftmill.records import Thinking

Marker = tuple[int, ...]
"""The ids of one marker: one where the tokenizer has it as a token, several where it is ordinary text."""

Form = tuple[int | tuple[int, ...], ...]
"""Many markers at once: at each place one id, or any of several. Thousands of ways to write a text are few of these."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The messages that one turn is made of, where reasoning and content are channels of their own.

    A message is `channel_id`, the channel's name, perhaps a recipient, then
    `message_id` and the body. The first stands at the output's start; each
    further one behind the structure's `close_ids` and `next_ids` (with perhaps a
    recipient before its `channel_id`). `reasoning`, `content`: the names, as ids.
    """

    next_ids: Marker
    channel_id: int
    message_id: int
    reasoning: tuple[Marker, ...]
    content: tuple[Marker, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """What a well-formed answer looks like.

    `open_ids`, `close_ids`: the marker (one id or several) that opens and
    closes the reasoning; empty for plain models. `open_also`, `close_also`:
    all ids that read as the same marker, where it is ordinary text that merges
    with what stands beside it. `end_ids`: any of them ends the turn.
    `foreign_ids`: role and turn markers that never stand inside an answer.
    `tail_ids`: what the template adds behind the conversation to make the model
    speak. `blank_ids`: ids that are white space only. `highest_id`: the largest
    id the tokenizer knows (its `len` counts no holes). `channels`: only where the
    turn is made of several messages; then `open_ids` is the header of a
    reasoning message and `close_ids` ends any message but the last.
    """

    name: str
    thinking: Thinking
    open_ids: Marker
    close_ids: Marker
    end_ids: tuple[int, ...]
    foreign_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    blank_ids: tuple[int, ...]
    highest_id: int
    evidence: tuple[str, ...]
    open_also: tuple[Form, ...] = ()
    close_also: tuple[Form, ...] = ()
    channels: Channels | None = None

    @property
    def opens(self) -> tuple[Form, ...]:
        """Every form of the opening marker; empty for plain models."""
        return (self.open_ids, *self.open_also) if self.open_ids else ()

    @property
    def closes(self) -> tuple[Form, ...]:
        """Every form of the closing marker; empty for plain models."""
        return (self.close_ids, *self.close_also) if self.close_ids else ()

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it: lists for tuples."""
        return {key: _lists(value) for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Structure:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for another mapping."""
        fields = {key: _tuples(value) for key, value in data.items()}
        channels = data.get("channels")
        fields["channels"] = channels and Channels(**{key: _tuples(value) for key, value in channels.items()})
        return cls(**{**fields, "thinking": Thinking(data["thinking"])})


def ids_at(form: Form, place: int) -> tuple[int, ...]:
    """The ids that may stand at a place of the form."""
    found = form[place]
    return (found,) if isinstance(found, int) else found


def stands(form: Form, ids: Sequence[int] | Ids) -> bool:
    """Whether `ids` are one of the form's markers, no more and no less."""
    return len(ids) == len(form) and all(index in ids_at(form, place) for place, index in enumerate(ids))


def structures_from_json(data: Mapping[str, Any]) -> dict[str, Structure]:
    """Each variant's structure, as `Structure.to_json` wrote them."""
    return {name: Structure.from_json(structure) for name, structure in data.items()}


def _lists(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_lists(item) for item in value]
    return {key: _lists(item) for key, item in value.items()} if isinstance(value, dict) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
