"""Pairs of markers that enclose reasoning, and where they stand in a template's ids.

The markers' texts are named here and nowhere else. Which of them a model has, as
one id or as several, its tokenizer says; what the template does with them, its ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmill.judging.structure import Form, ids_at
from draftmill.records import Thinking
from draftmill.rendering.marker_forms import places
from draftmill.rendering.probe import Probe

MARKERS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<THINKING>", "</THINKING>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|start_think|>", "<|end_think|>"),
    ("<|thought_start|>", "<|thought_end|>"),
    ("<start_working_out>", "<end_working_out>"),
    # gemma-4: a channel of its own inside one turn, which its other marker closes.
    ("<|channel>thought", "<channel|>"),
)
"""Opening and closing texts in use; the only place that names them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One way of marking reasoning, as this tokenizer's ids."""

    open_text: str
    close_text: str
    opens: tuple[Form, ...]
    closes: tuple[Form, ...]

    @property
    def ids(self) -> frozenset[int]:
        """Every id of a marker; of one that is ordinary text they mean nothing by themselves."""
        forms = (*self.opens, *self.closes)
        return frozenset(index for form in forms for place in range(len(form)) for index in ids_at(form, place))

    @property
    def tokens(self) -> frozenset[int]:
        """The ids of those of its two markers that are tokens."""
        alone = [forms[0] for forms in (self.opens, self.closes) if len(forms) == 1 and len(forms[0]) == 1]
        return frozenset(index for form in alone for index in ids_at(form, 0))

    def __str__(self) -> str:
        return f"{self.open_text!r} {list(self.opens[0])} ... {self.close_text!r} {list(self.closes[0])}"


def pairs_in_use(probe: Probe) -> list[Pair]:
    """Pairs the template names or the tokenizer has as tokens, whose ids are certain."""
    known = frozenset(probe.added.values())
    used = [texts for texts in MARKERS if any(text in probe.template or text in known for text in texts)]
    return [pair for texts in used if (pair := _pair(probe, *texts)) is not None]


def usual_pair(probe: Probe) -> Pair | None:
    """`<think>` and `</think>`, whether or not anything names them; None when their ids are not certain."""
    return _pair(probe, *MARKERS[0])


def _pair(probe: Probe, open_text: str, close_text: str) -> Pair | None:
    opens, closes = probe.forms_of(open_text), probe.forms_of(close_text)
    return Pair(open_text, close_text, opens, closes) if opens and closes else None


def place_at_end(probe: Probe, pair: Pair) -> Thinking | None:
    """What the pair does at the prompt's end: None when it is not there, NONE when something else follows it."""
    tail = probe.tail_ids
    opened, closed = (max(places(tail, forms), default=None) for forms in (pair.opens, pair.closes))
    if opened is None and closed is None:
        return None
    is_open = closed is None or (opened is not None and opened > closed)
    _, end = max(place for place in (opened, closed) if place is not None)
    if not set(tail[end:]) <= set(probe.blank_ids):
        return Thinking.NONE
    return Thinking.OPENED_BY_PROMPT if is_open else Thinking.CLOSED_BY_PROMPT


def encloses(ids: tuple[int, ...], pair: Pair) -> bool:
    """Whether the pair stands in `ids`, opening before closing."""
    opened, closed = places(ids, pair.opens), places(ids, pair.closes)
    return bool(opened and closed and opened[0] < closed[-1])


def empty_block_at_start(probe: Probe, ids: tuple[int, ...], pair: Pair) -> bool:
    """Whether `ids`, which stand behind the prompt's tail, begin with the pair and nothing but white space in it."""
    opened, closed = places(ids, pair.opens), places(ids, pair.closes)
    if not opened or not closed:
        return False
    (start, inner), (outer, _) = opened[0], closed[0]
    # Markers of ordinary text may share an id; the tail's last characters may be merged with what follows it.
    is_empty = start < outer and set(ids[inner:outer]) <= set(probe.blank_ids)
    return is_empty and probe.text(probe.tail_ids).endswith(probe.text(ids[:start]).strip())
