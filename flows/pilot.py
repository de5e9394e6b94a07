"""Pilot: a sample of what is missing, sealed like any rows, and what the whole takes by it."""

from __future__ import annotations

from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run

from draftmill.workspace import open_workspace
from flows.parameters import Changes, Gpus, PilotRows, RecipeFile, RecipeForm, Width, chosen_recipe, recipe_label
from flows.refresh import refresh_stages
from tasks.ending import followed
from tasks.follow import about
from tasks.load import load
from tasks.pilot import Known, Sampling, tell


def _run_name() -> str:
    given = flow_run.parameters
    return f"pilot {recipe_label(given['recipe'], given['recipe_file'])}".rstrip()


@flow(name="pilot", flow_run_name=_run_name, persist_result=False)
@followed
async def pilot(
    recipe: RecipeForm = None,
    recipe_file: RecipeFile = None,
    changes: Changes = None,
    rows: PilotRows = None,
    gpus: Gpus = None,
    hidden_size: Width = None,
    hidden_layers: Width = None,
) -> State[dict[str, Any]]:
    """Ask a sample of what a recipe misses, and say what the whole would take. Its rows count: no run asks them again.

    Args:
        recipe: The whole run, as for refresh.
        recipe_file: In place of the recipe: a YAML file that the worker can read.
        changes: Single values on top of either, as key=value: sampling.temperature=0.6
        rows: How many, about. Without it 200, or twice what the servers take at once.
        gpus: Of all servers together, where they do not say; for GPU hours.
        hidden_size: Numbers in a hidden state of the model, where its config.json is not here.
        hidden_layers: Hidden states that are kept of each id. Without it 4, as EAGLE-3 wants them.
    """
    chosen = await chosen_recipe(recipe, recipe_file, changes)
    about(f"pilot {chosen.label}", chosen.dataset)
    sampling = Sampling(rows)
    async with open_workspace(chosen.dataset, chosen.commit):
        loaded = await load(chosen)
        state = await refresh_stages(chosen, loaded, again=[], generate=sampling)
        return await tell(state, sampling, chosen, Known(gpus, hidden_size, hidden_layers))
