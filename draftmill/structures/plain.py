"""An answer without reasoning: content, then the end of the turn.

By itself only where neither the template nor the tokenizer knows anything about
reasoning: a reasoning model taken for a plain one would lose every check that
its rows need. Named in the recipe it is taken as the author's word.
"""

from __future__ import annotations

from draftmill.judging.structure import Structure
from draftmill.records import Thinking
from draftmill.rendering.probe import Probe

ORDER = 100
"""Last: it is what is left when nothing else fits."""

WORDS_OF_REASONING = ("think", "thought", "reasoning", "<|channel")
"""In a template or an added token (lower case) they mean that this may be a reasoning model."""


def derive(probe: Probe, *, named: bool = False) -> Structure | None:
    """The plain structure, unless something in template or tokenizer speaks of reasoning."""
    hints = reasoning_hints(probe)
    if hints and not named:
        return None
    ends = turn_ends(probe)
    return Structure(
        name="plain",
        thinking=Thinking.NONE,
        open_ids=(),
        close_ids=(),
        end_ids=ends,
        foreign_ids=foreign(probe, but=ends),
        tail_ids=probe.tail_ids,
        blank_ids=probe.blank_ids,
        highest_id=probe.highest_id,
        evidence=(
            f"named in the recipe, though there is: {'; '.join(hints)}"
            if hints
            else "neither template nor tokenizer knows a reasoning marker",
            end_evidence(probe),
        ),
    )


def reasoning_hints(probe: Probe) -> tuple[str, ...]:
    """What in template or tokenizer speaks of reasoning."""
    template = probe.template.lower()
    in_template = [f"the template says {word!r}" for word in WORDS_OF_REASONING if word in template]
    in_tokenizer = [
        f"the tokenizer has {text!r} ({index})"
        for index, text in sorted(probe.added.items())
        if any(word in text.lower() for word in WORDS_OF_REASONING)
    ]
    return (*in_template, *in_tokenizer)


def turn_ends(probe: Probe) -> tuple[int, ...]:
    """The ids that end a turn: the template's, the tokenizer's eos, the caller's; sorted."""
    known = {*probe.answer_end_ids[:1], *probe.end_ids}
    return tuple(sorted(known if probe.eos_id is None else known | {probe.eos_id}))


def foreign(probe: Probe, *, but: tuple[int, ...]) -> tuple[int, ...]:
    """Role and turn markers, and bos: what the template writes and a model never should; sorted."""
    bos = set() if probe.bos_id is None else {probe.bos_id}
    return tuple(sorted((probe.marker_ids | bos) - set(but)))


def end_evidence(probe: Probe) -> str:
    """How the end of a turn was decided, in one line."""
    said = "the template writes no marker behind an answer"
    if probe.answer_end_ids:
        marker = probe.answer_end_ids[:1]
        said = f"behind an answer the template writes {probe.text(marker)!r} {list(marker)}"
    return f"{said}; eos is {probe.eos_id}; others that end a turn: {sorted(probe.end_ids)}"
