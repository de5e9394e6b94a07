"""Reasoning between an opening and a closing marker, then content, then the end of the turn.

Who opens it is read by ids off the end of a prompt: an opening marker with only
white space behind it (the prompt opened), a closing one (the prompt closed). Where
neither stands there, the model opens only on evidence (`_opening`), and a template
whose switch for reasoning is off has none.

Refuses to guess: two pairs at work, text behind the marker, a pair that the
template merely knows, or markers whose ids are not certain, give None. Named in the
recipe, the one pair there is is opened by the model, on the author's word; where
there is none, `<think>`.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftmill.judging.structure import Form, Marker, Structure
from draftmill.records import Thinking
from draftmill.rendering.marker_forms import first_of, num_forms, places
from draftmill.rendering.probe import Probe
from draftmill.structures._opening import opens_by_model, switched_off
from draftmill.structures._pairs import Pair, pairs_in_use, place_at_end, usual_pair
from draftmill.structures._turns import end_evidence, foreign, turn_ends

ORDER = 20

Decision = tuple[Pair, Thinking, str]


def derive(probe: Probe, *, named: bool = False) -> Structure | None:
    """The structure when exactly one pair of markers explains the prompt, else None."""
    pairs = pairs_in_use(probe)
    at_end = [(pair, place) for pair in pairs if (place := place_at_end(probe, pair)) is not None]
    if at_end:
        return (
            _structure(probe, _at_end(probe, *at_end[0]))
            if len(at_end) == 1 and at_end[0][1] is not Thinking.NONE
            else None
        )
    decisions = [(pair, Thinking.OPENED_BY_MODEL, said) for pair in pairs if (said := opens_by_model(probe, pair))]
    decisions = decisions or [(pair, Thinking.NONE, said) for pair in pairs if (said := switched_off(probe, pair))]
    if not decisions and named:
        decisions = _on_the_authors_word(probe, pairs)
    return _structure(probe, decisions[0]) if len(decisions) == 1 else None


def _on_the_authors_word(probe: Probe, pairs: list[Pair]) -> list[Decision]:
    said = "the one pair there is" if pairs else "neither template nor tokenizer has a pair, so it is the usual one,"
    found = pairs or [pair for pair in (usual_pair(probe),) if pair is not None]
    return [(pair, Thinking.OPENED_BY_MODEL, f"named in the recipe; {said} {pair}") for pair in found]


def _at_end(probe: Probe, pair: Pair, place: Thinking) -> Decision:
    text = pair.open_text if place is Thinking.OPENED_BY_PROMPT else pair.close_text
    ids = _form_in(probe.tail_ids, pair.opens if place is Thinking.OPENED_BY_PROMPT else pair.closes)
    return pair, place, f"the prompt ends with {text!r} {list(ids)}; its last ids are {list(probe.tail_ids)}"


def _structure(probe: Probe, decision: Decision) -> Structure:
    pair, thinking, said = decision
    opens, closes = _in_order(probe, pair.opens), _in_order(probe, pair.closes)
    ends = tuple(sorted(set(turn_ends(probe)) - pair.ids))
    known = num_forms(pair.closes)
    forms = [f"{pair.close_text!r} is ordinary text here: {known} forms of its ids"] if known > 1 else []
    return Structure(
        name="think",
        thinking=thinking,
        open_ids=first_of(opens[0]),
        close_ids=first_of(closes[0]),
        end_ids=ends,
        foreign_ids=foreign(probe, but={*pair.ids, *ends}),
        tail_ids=probe.tail_ids,
        blank_ids=probe.blank_ids,
        highest_id=probe.highest_id,
        evidence=(said, *forms, end_evidence(probe, ends)),
        open_also=opens[1:],
        close_also=closes[1:],
    )


def _in_order(probe: Probe, forms: tuple[Form, ...]) -> tuple[Form, ...]:
    """The form that stands in the prompt first."""
    first = _form_in(probe.tail_ids, forms)
    return (first, *(form for form in forms if form != first))


def _form_in(ids: Sequence[int], forms: tuple[Form, ...]) -> Marker:
    found = places(tuple(ids), forms)
    return tuple(ids[slice(*found[-1])]) if found else first_of(forms[0])
