"""An answer without reasoning: content, then the end of the turn.

By itself only where neither the template nor the tokenizer knows anything about
reasoning: a reasoning model taken for a plain one would lose every check that
its rows need. Named in the recipe it is taken as the author's word, and markers of
reasoning that are tokens are foreign then. Not where the prompt itself ends with an
opened block: such an answer begins inside it, whatever the author says.
"""

from __future__ import annotations

from draftmill.judging.structure import Structure
from draftmill.records import Thinking
from draftmill.rendering.probe import Probe
from draftmill.structures._pairs import pairs_in_use, place_at_end
from draftmill.structures._turns import end_evidence, foreign, reasoning_hints, turn_ends

ORDER = 100
"""Last: it is what is left when nothing else fits."""


def derive(probe: Probe, *, named: bool = False) -> Structure | None:
    """The plain structure, unless something in template or tokenizer speaks of reasoning, or the prompt opens it."""
    hints = reasoning_hints(probe)
    if hints and not named:
        return None
    pairs = pairs_in_use(probe)
    if any(place_at_end(probe, pair) is Thinking.OPENED_BY_PROMPT for pair in pairs):
        return None
    ends = turn_ends(probe)
    markers = frozenset().union(*(pair.tokens for pair in pairs)) - set(ends)
    return Structure(
        name="plain",
        thinking=Thinking.NONE,
        open_ids=(),
        close_ids=(),
        end_ids=ends,
        foreign_ids=tuple(sorted({*foreign(probe, but=set(ends)), *markers})),
        tail_ids=probe.tail_ids,
        blank_ids=probe.blank_ids,
        highest_id=probe.highest_id,
        evidence=(
            f"named in the recipe, though there is: {'; '.join(hints)}"
            if hints
            else "neither template nor tokenizer knows a reasoning marker",
            end_evidence(probe, ends),
        ),
    )
