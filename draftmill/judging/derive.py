"""The structure of a model's output, decided once per run and explained.

Tokenizer and recipe in, a `Structure` out. The shelf `structures` is asked in
its order; the first that recognises its kind in the probe's ids decides. What
none recognises is an error that asks for `structure:` in the recipe and shows
the evidence, never a silent `plain`. `inspect` is the same decision as a table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from draftmill import plugins
from draftmill.errors import RecipeError
from draftmill.judging.structure import Marker, Structure
from draftmill.recipe import Model, Recipe
from draftmill.rendering.history import history_mode
from draftmill.rendering.marker_forms import opening_beginnings
from draftmill.rendering.probe import TAIL_SHOWN, Probe, probe_template
from draftmill.rendering.template import date_unset
from draftmill.rendering.tokenizer import generation_end_ids
from draftmill.rendering.variables import check_template_kwargs
from draftmill.structures._pairs import MARKERS
from draftmill.structures._turns import reasoning_hints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHELF = "structures"
AUTO = "auto"


def derive_structure(tokenizer: PreTrainedTokenizerBase, recipe: Recipe) -> Structure:
    """The structure answers must have.

    Raises RecipeError: undecided, the named kind does not fit the template, no
    id ends a turn, or the template prints the date and the recipe has none.
    """
    probe, structure = examine(tokenizer, recipe)
    if probe.depends_on_date and recipe.model.date is None:
        raise date_unset()
    return structure


def examine(tokenizer: PreTrainedTokenizerBase, about: Recipe | Model) -> tuple[Probe, Structure]:
    """The evidence, and what was decided by it, whatever the date. Raises RecipeError when nothing can be."""
    probe = _probe(tokenizer, about)
    return probe, _decide(probe, about.structure if isinstance(about, Recipe) else AUTO)


def inspect(tokenizer: PreTrainedTokenizerBase, about: Recipe | Model) -> dict[str, Any]:
    """How the template renders and what was decided, as `draftmill inspect --json` prints it. Raises RecipeError."""
    probe, structure = examine(tokenizer, about)
    tail = structure.tail_ids or probe.prompt_ids[-TAIL_SHOWN:]
    model = about.model if isinstance(about, Recipe) else about
    history = history_mode(tokenizer, structure, template_kwargs=model.template_kwargs)
    evidence = [*structure.evidence, *probe.evidence, f"turns: all: {history.evidence}"]
    if probe.depends_on_date:
        evidence.append("the prompt changes with the day: the recipe must set model.date")
    return {
        "structure": structure.name,
        "thinking": structure.thinking.value,
        "open_ids": list(structure.open_ids),
        "close_ids": list(structure.close_ids),
        "end_ids": list(structure.end_ids),
        "prompt_tail": list(tail),
        "prompt_tail_text": probe.text(tail),
        "keeps_history_reasoning": keeps_reasoning(probe, structure),
        "depends_on_date": probe.depends_on_date,
        "highest_id": structure.highest_id,
        "evidence": evidence,
    }


def suspects(tokenizer: PreTrainedTokenizerBase, recipe: Recipe, structure: Structure) -> dict[Marker, str]:
    """Ids, with the marker they begin, that no answer begins with if the model is plain as was derived.

    None where the recipe names the structure: then it is the author's word.
    """
    if recipe.structure != AUTO or structure.open_ids:
        return {}
    return opening_beginnings(tokenizer, (opening for opening, _ in MARKERS))


def keeps_reasoning(probe: Probe, structure: Structure) -> bool:
    """Whether the template leaves the reasoning of earlier turns in later prompts."""
    if not structure.open_ids:
        return False
    return probe.keeps_reasoning(probe.text(structure.open_ids), probe.text(structure.close_ids))


def _probe(tokenizer: PreTrainedTokenizerBase, about: Recipe | Model) -> Probe:
    model = about.model if isinstance(about, Recipe) else about
    stops = about.sampling.stop_token_ids if isinstance(about, Recipe) else []
    check_template_kwargs(tokenizer, model.template_kwargs)
    config = generation_end_ids(model)
    ends = sorted({*config.ids, *stops})
    probe = probe_template(tokenizer, template_kwargs=model.template_kwargs, end_ids=ends)
    return probe if config.unseen is None else replace(probe, evidence=(*probe.evidence, config.unseen))


def _decide(probe: Probe, wanted: str) -> Structure:
    named = wanted != AUTO
    shelf = [plugins.load(SHELF, name) for name in ([wanted] if named else plugins.names(SHELF))]
    for module in sorted(shelf, key=lambda module: int(module.ORDER)):
        structure: Structure | None = module.derive(probe, named=named)
        if structure is not None:
            return _ending(structure, probe)
    raise _undecided(probe, wanted)


def _ending(structure: Structure, probe: Probe) -> Structure:
    if not structure.end_ids:
        raise RecipeError(
            "no id ends a turn",
            value=f"the prompt ends with {probe.text(probe.prompt_ids[-TAIL_SHOWN:])!r}",
            expected="a marker behind an assistant's turn, or an eos token in the tokenizer",
            remedy="name the ids that end a turn in sampling.stop_token_ids",
        )
    return structure


def _switched(probe: Probe) -> list[str]:
    """What else the prompt can end with, by the template's own switches."""
    others = {switch.tail_ids: switch for switch in probe.switches if switch.tail_ids != probe.tail_ids}
    return [f"with {switch} it ends with {probe.text(tail[-TAIL_SHOWN:])!r}" for tail, switch in others.items()]


def _undecided(probe: Probe, wanted: str) -> RecipeError:
    tail = probe.tail_ids[-TAIL_SHOWN:]
    found = [f"the prompt ends with {probe.text(tail)!r} {list(tail)}", *_switched(probe)]
    found += [*reasoning_hints(probe), *probe.evidence]
    known = ", ".join(plugins.names(SHELF))
    if wanted != AUTO:
        return RecipeError(
            f"the template does not have the structure the recipe names: {wanted}",
            value="; ".join(found),
            expected="a template whose ids show that structure",
            remedy=f"set `structure:` to auto or to another of: {known}",
        )
    return RecipeError(
        "the structure of the answers cannot be decided",
        value="; ".join(found),
        expected="one kind from the structures shelf that the template's ids show",
        remedy=f"set `structure:` in the recipe to one of: {known} (plain for a model that never reasons)",
    )
