"""An answer without reasoning: content, then the end of the turn.

By itself only where neither the template nor the tokenizer knows anything about
reasoning: a reasoning model taken for a plain one would lose every check that
its rows need. Named in the recipe it is taken as the author's word.
"""

from __future__ import annotations

from draftmill.judging.structure import Structure
from draftmill.records import Thinking
from draftmill.rendering.probe import Probe
from draftmill.structures._turns import end_evidence, foreign, reasoning_hints, turn_ends

ORDER = 100
"""Last: it is what is left when nothing else fits."""


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
        foreign_ids=foreign(probe, but=set(ends)),
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
