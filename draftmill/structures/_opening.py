"""Who opens the reasoning when the prompt's end does not show it: positive evidence on ids, or nothing.

A template that merely knows a pair of markers proves nothing: most templates of
models that never reason strip such blocks from earlier answers. What does prove
that the model opens by itself is said here, one function each, and the evidence
is the sentence it returns.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftmill.records import Thinking
from draftmill.rendering.marker_forms import places
from draftmill.rendering.probe import Probe
from draftmill.rendering.switches import Switch
from draftmill.structures._pairs import Pair, empty_block_at_start, encloses, place_at_end


def opens_by_model(probe: Probe, pair: Pair) -> str | None:
    """Why the model opens this pair itself; None without evidence."""
    if _left_to_the_model(probe, pair):
        return None
    for reason in (_a_switch_closes, _silence_is_a_block, _the_prompt_shows_it, _a_switch_asks):
        if said := reason(probe, pair):
            return said
    return None


def switched_off(probe: Probe, pair: Pair) -> str | None:
    """Why the model does not reason in this run: the prompt is the one of a switch that is off, and on it would ask."""
    if _left_to_the_model(probe, pair):
        return None
    for off, on in _contrasts(probe):
        if not off.is_off or on.is_off:
            continue
        if _the_prompt_shows_it(probe.switched(on), pair) or (_asks(on, off) and _writes(probe, pair)):
            return f"the prompt is that of {off}; only with {on} does it ask for reasoning, which is written {pair}"
    return None


def _left_to_the_model(probe: Probe, pair: Pair) -> bool:
    """A switch that can open the block and can close it has been left alone: the model reasons when it likes."""
    places = [(switch.name, place_at_end(probe.switched(switch), pair)) for switch in probe.switches]
    return any(
        (name, Thinking.OPENED_BY_PROMPT) in places and (name, Thinking.CLOSED_BY_PROMPT) in places
        for name in {switch.name for switch in probe.switches}
    )


def _a_switch_closes(probe: Probe, pair: Pair) -> str | None:
    """With reasoning switched off the prompt closes a block: so without that, one comes."""
    for switch in probe.switches:
        if place_at_end(probe.switched(switch), pair) is Thinking.CLOSED_BY_PROMPT:
            tail = probe.text(switch.tail_ids)
            return f"with {switch} the prompt ends with {tail!r}, a closed block; without it the model opens {pair}"
    return None


def _silence_is_a_block(probe: Probe, pair: Pair) -> str | None:
    """Even an answer without reasoning is written with an empty block: so every answer has one."""
    silent = probe.turns.silent
    if not empty_block_at_start(probe, silent, pair):
        return None
    written = probe.text(silent[places(silent, pair.opens)[0][0] :])
    return f"the template writes an answer without reasoning as {written!r}: every answer opens {pair}"


def _the_prompt_shows_it(probe: Probe, pair: Pair) -> str | None:
    """The template's own words in the prompt hold the pair: they tell the model to use it."""
    head = probe.prompt_ids[: len(probe.prompt_ids) - len(probe.tail_ids)]
    if not encloses(head, pair):
        return None
    return f"the template's own instructions in the prompt hold {pair}: they ask for it"


def _a_switch_asks(probe: Probe, pair: Pair) -> str | None:
    """A switch is on, which changes what the prompt asks, and the template writes reasoning with the pair."""
    for on, off in _contrasts(probe):
        if off.is_off and not on.is_off and _asks(on, off) and _writes(probe, pair):
            return f"{on} asks for reasoning in the prompt ({off} does not), and it is written {pair}"
    return None


def _contrasts(probe: Probe) -> Iterator[tuple[Switch, Switch]]:
    """Each switch at the prompt's own value, with the same at a value that gives another prompt."""
    for own in probe.switches:
        if own.prompt_ids == probe.prompt_ids:
            for other in _values_of(probe, own.name):
                if other.prompt_ids != own.prompt_ids:
                    yield own, other


def _values_of(probe: Probe, name: str) -> list[Switch]:
    return [switch for switch in probe.switches if switch.name == name]


def _asks(on: Switch, off: Switch) -> bool:
    """Whether the two differ in what the prompt says, not only in a marker at its end."""
    return on.head_ids != off.head_ids


def _writes(probe: Probe, pair: Pair) -> bool:
    """Whether the template writes reasoning with this pair."""
    return encloses(probe.turns.reasoned, pair)
