"""What the commands that run a flow share: their arguments, and the way to the flow.

A flow is found through the entry point `draftmill.flows`, so that draftmill/ imports
nothing above it.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from draftmill.reporting import terminal

RecipePath = Annotated[str, typer.Argument(metavar="RECIPE", help="A YAML file; see deployments/recipes/.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value: sampling.top_p=0.9")
]


def launch(flow: str, **parameters: Any) -> dict[str, Any]:
    """The data of the flow's final state. Raises what the flow raised."""
    from draftmill.serving.prefect_server import SETTINGS

    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    (found,) = entry_points(group="draftmill.flows", name="launch")
    with terminal.listening():
        terminal.say("starting Prefect")
        result: dict[str, Any] = found.load()(flow, **parameters)
    return result
