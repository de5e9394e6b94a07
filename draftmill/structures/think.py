"""Reasoning between an opening and a closing marker, then content, then the end of the turn.

Who opens it is read by ids off the end of a prompt: an opening marker with only
white space behind it (the prompt opened), a closing one (the prompt closed), or
neither, in a template that uses the tokenizer's markers elsewhere (the model
opens). The markers' texts are named once, below; which of them a model has, and
whether as one id or several, its tokenizer says.

Refuses to guess: two pairs at work, text behind the marker, or markers that are
ordinary text merged differently by context, give None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftmill.judging.structure import Structure
from draftmill.records import Thinking
from draftmill.rendering.probe import Probe
from draftmill.structures.plain import end_evidence, foreign, turn_ends

ORDER = 10

MARKERS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|start_think|>", "<|end_think|>"),
    ("<|thought_start|>", "<|thought_end|>"),
)
"""Opening and closing texts in use; the only place that names them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One way of marking reasoning, as this tokenizer's ids."""

    open_text: str
    close_text: str
    open_ids: tuple[int, ...]
    close_ids: tuple[int, ...]

    @property
    def is_single(self) -> bool:
        return len(self.open_ids) == 1 and len(self.close_ids) == 1


def derive(probe: Probe, *, named: bool = False) -> Structure | None:
    """The structure when exactly one pair of markers explains the prompt's end, else None."""
    pairs = [Pair(a, b, probe.ids_of(a), probe.ids_of(b)) for a, b in MARKERS]
    at_tail = [(pair, place) for pair in pairs if (place := _place(probe, pair)) is not None]
    if at_tail:
        decided = [(pair, place) for pair, place in at_tail if place is not Thinking.NONE and _is_certain(probe, pair)]
        return _structure(probe, *decided[0]) if len(decided) == len(at_tail) == 1 else None
    used = [pair for pair in pairs if _is_used(probe, pair)]
    return _structure(probe, used[0], Thinking.OPENED_BY_MODEL) if len(used) == 1 else None


def occurrences(ids: Sequence[int], marker: Sequence[int]) -> list[int]:
    """Where `marker` stands in `ids`."""
    return [i for i in range(len(ids) - len(marker) + 1) if tuple(ids[i : i + len(marker)]) == tuple(marker)]


def _place(probe: Probe, pair: Pair) -> Thinking | None:
    """What the pair does at the prompt's end: None when it is not there, NONE when something else follows it."""
    tail = probe.tail_ids
    opened = max(occurrences(tail, pair.open_ids), default=-1)
    closed = max(occurrences(tail, pair.close_ids), default=-1)
    if opened == closed == -1:
        return None
    marker = pair.open_ids if opened > closed else pair.close_ids
    behind = tail[max(opened, closed) + len(marker) :]
    if not set(behind) <= set(probe.blank_ids):
        return Thinking.NONE
    return Thinking.OPENED_BY_PROMPT if opened > closed else Thinking.CLOSED_BY_PROMPT


def _is_certain(probe: Probe, pair: Pair) -> bool:
    """Markers of several ids are certain only where the template itself writes the closing one with the same ids."""
    return pair.is_single or any(occurrences(ids, pair.close_ids) for ids in (*probe.assistant_ids, probe.tail_ids))


def _is_used(probe: Probe, pair: Pair) -> bool:
    """Whether the template works with these tokens: writes them in a probe, or names the closing one."""
    if not pair.is_single or not {*pair.open_ids, *pair.close_ids} <= probe.added.keys():
        return False
    written = {*pair.open_ids, *pair.close_ids} & probe.marker_ids
    return bool(written) or pair.close_text in probe.template


def _structure(probe: Probe, pair: Pair, thinking: Thinking) -> Structure:
    ends = tuple(sorted(set(turn_ends(probe)) - {*pair.open_ids, *pair.close_ids}))
    return Structure(
        name="think",
        thinking=thinking,
        open_ids=pair.open_ids,
        close_ids=pair.close_ids,
        end_ids=ends,
        foreign_ids=foreign(probe, but=(*pair.open_ids, *pair.close_ids, *ends)),
        tail_ids=probe.tail_ids,
        blank_ids=probe.blank_ids,
        highest_id=probe.highest_id,
        evidence=(_said(probe, pair, thinking), end_evidence(probe)),
    )


def _said(probe: Probe, pair: Pair, thinking: Thinking) -> str:
    marker = {
        Thinking.OPENED_BY_PROMPT: f"the prompt ends with {pair.open_text!r} {list(pair.open_ids)}",
        Thinking.CLOSED_BY_PROMPT: f"the prompt ends with {pair.close_text!r} {list(pair.close_ids)}",
    }
    elsewhere = f"the prompt ends without a marker; the template works with {pair.open_text!r} {list(pair.open_ids)}"
    return f"{marker.get(thinking, elsewhere)}; its last ids are {list(probe.tail_ids)}"
