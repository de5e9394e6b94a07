"""What every structure takes from a probe in the same way: the ids that end a turn, and those foreign to it."""

from __future__ import annotations

from collections.abc import Iterable, Set

from draftmill.rendering.probe import Probe
from draftmill.rendering.switches import template_names

WORDS_OF_REASONING = ("think", "thought", "reason", "<|channel")
"""In a name, a key or a marker (lower case) they mean that this may be a reasoning model."""

HINTS_SHOWN = 5
"""Of a template: one would do."""


def reasoning_hints(probe: Probe) -> tuple[str, ...]:
    """What in template or tokenizer speaks of reasoning: names, keys and markers, not words of the prompt's prose."""
    in_template = [f"the template says {word!r}" for word in template_names(probe.template) if _speaks(word)]
    in_tokenizer = [
        f"the tokenizer has {text!r} ({index})" for index, text in sorted(probe.added.items()) if _speaks(text)
    ]
    return (*in_template[:HINTS_SHOWN], *in_tokenizer)


def _speaks(word: str) -> bool:
    return any(part in word.lower() for part in WORDS_OF_REASONING)


def turn_ends(probe: Probe) -> tuple[int, ...]:
    """The ids that end a turn: the template's, the tokenizer's eos, the caller's; sorted."""
    known = {*probe.turns.end_ids, *probe.end_ids}
    return tuple(sorted(known if probe.eos_id is None else known | {probe.eos_id}))


def foreign(probe: Probe, *, but: Set[int]) -> tuple[int, ...]:
    """Role and turn markers, and bos: what the template writes around turns and a model never should; sorted."""
    bos = set() if probe.bos_id is None else {probe.bos_id}
    return tuple(sorted((probe.turns.around | bos) - but))


def end_evidence(probe: Probe, ends: Iterable[int]) -> str:
    """How the end of a turn was decided, in one line."""
    by_template = [index for index in probe.turns.end_ids if index in set(ends)]
    said = f"the template ends a turn with {_named(probe, by_template) or 'no marker'}"
    if probe.eos_id is not None:
        said += f"; eos is {_named(probe, [probe.eos_id])}"
    return said + (f"; the model's configuration and the recipe add {list(probe.end_ids)}" if probe.end_ids else "")


def _named(probe: Probe, ids: Iterable[int]) -> str:
    return ", ".join(f"{probe.text([index])!r} ({index})" for index in ids)
