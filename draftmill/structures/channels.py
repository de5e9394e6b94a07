"""Channels (gpt-oss's harmony): a turn is several messages, and its reasoning is one of the channels.

    <|channel|>analysis<|message|> reasoning <|end|> <|start|>assistant
    <|channel|>final<|message|> content <|return|>

The model opens: the prompt ends with `<|start|>assistant`. Everything is read off
the ids of a turn that the template writes with reasoning: which marker begins a
channel's name, which its body, what ends a message, what begins the next one.
Only the channels' names are given here, since a template does not say what they
are for.

Refuses a template whose turn with reasoning has another form, and one whose prompt
has already named the channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmill.judging.structure import Channels, Marker, Structure
from draftmill.records import Thinking
from draftmill.rendering.probe import Probe
from draftmill.structures._turns import end_evidence, foreign, turn_ends

ORDER = 10

CHANNEL, MESSAGE = "<|channel|>", "<|message|>"
REASONING, CONTENT = ("analysis",), ("final", "commentary")
"""What the channels are for: the reasoning; the answer, and what is said with and to tools."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """The two messages of a turn with reasoning. `between`: what ends the first, and what begins the second."""

    channel_id: int
    message_id: int
    end: Marker
    next_ids: Marker


def derive(probe: Probe, *, named: bool = False) -> Structure | None:
    """The structure when the template writes reasoning and content as channels, else None."""
    del named  # nothing here needs the author's word
    found = _messages(probe)
    if found is None:
        return None
    reasoning, content = (_names(probe, names) for names in (REASONING, CONTENT))
    ends = tuple(sorted(set(turn_ends(probe)) - set(found.end)))
    grammar = {found.channel_id, found.message_id, *found.end, *found.next_ids, *ends}
    header = (found.channel_id, *reasoning[0], found.message_id)
    return Structure(
        name="channels",
        thinking=Thinking.OPENED_BY_MODEL,
        open_ids=header,
        close_ids=found.end,
        end_ids=ends,
        foreign_ids=foreign(probe, but=grammar),
        tail_ids=probe.tail_ids,
        blank_ids=probe.blank_ids,
        highest_id=probe.highest_id,
        evidence=(
            f"a turn with reasoning is written {probe.text(probe.turns.reasoned)!r}",
            f"the prompt ends with {probe.text(probe.tail_ids)!r} {list(probe.tail_ids)}: the model names the channel",
            end_evidence(probe, ends),
        ),
        channels=Channels(
            next_ids=found.next_ids,
            channel_id=found.channel_id,
            message_id=found.message_id,
            reasoning=reasoning,
            content=content,
        ),
    )


def _messages(probe: Probe) -> _Messages | None:
    """The turn with reasoning, taken apart: None when it is not two messages, or the prompt has begun one."""
    ids = {text: index for index, text in probe.added.items()}
    channel, message, turn = ids.get(CHANNEL), ids.get(MESSAGE), probe.turns.reasoned
    if channel is None or message is None or channel in probe.tail_ids or turn[:1] != (channel,):
        return None
    channels = [place for place, index in enumerate(turn) if index == channel]
    bodies = [place for place, index in enumerate(turn) if index == message]
    if len(channels) != 2 or len(bodies) != 2 or turn[1 : bodies[0]] not in _names(probe, REASONING):
        return None
    if turn[channels[1] + 1 : bodies[1]] not in _names(probe, CONTENT):
        return None
    header = len(probe.tail_ids)
    end, next_ids = turn[bodies[0] + 1 : channels[1] - header], turn[channels[1] - header : channels[1]]
    marker = tuple(index for index in end if index in probe.added)
    return _Messages(channel, message, marker, next_ids) if len(marker) == 1 and next_ids == probe.tail_ids else None


def _names(probe: Probe, names: tuple[str, ...]) -> tuple[Marker, ...]:
    return tuple(probe.ids_of(name) for name in names)
