"""`draftmill pilot`: a sample of a recipe's rows first, and what the whole would take."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from draftmill.cli_dataset import Json
from draftmill.cli_flows import RecipePath, Sets, launch
from draftmill.reporting import terminal
from draftmill.reporting.plain_text import plain


def pilot(
    recipe: RecipePath,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", min=1, max=20_000, help="About how many; default: 200, or twice what the servers take at once."
        ),
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", min=0.01, help="Of all servers together, where they do not say.")
    ] = None,
    hidden_size: Annotated[
        int | None, typer.Option("--hidden-size", min=1, help="Of the model, where its config.json is not here.")
    ] = None,
    hidden_layers: Annotated[
        int | None, typer.Option("--hidden-layers", min=1, help="Hidden states kept of each id; default: 4 (EAGLE-3).")
    ] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Ask a sample of what is missing; tell lengths, verdicts, and time, tokens and storage of the whole.

    Even over the lengths of the prompts, through the same checks as a run, and sealed: its rows count, no run asks them
    again. A second pilot asks other rows. docs/pilot.md says how far the ranges can be trusted.

    Example: draftmill pilot deployments/recipes/demo.yaml --rows 20
    """
    from draftmill.recipe_file import load_recipe

    loaded = load_recipe(recipe, tuple(sets or ()))
    known = {"rows": rows, "gpus": gpus, "hidden_size": hidden_size, "hidden_layers": hidden_layers}
    data = launch("pilot", recipe=loaded, **known)
    terminal.print_summary(data["summary"], plan=False, as_json=False, attempts=data["attempts"])
    for line in data["lines"]:
        terminal.out.print(Text(plain(line)))
    if data["error"]:
        terminal.say(data["error"])
    if as_json:
        terminal.print_json({"summary": data["summary"], "estimate": data["estimate"]})
    sys.exit(data["exit_code"])
