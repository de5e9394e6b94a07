"""The commands of operators: what a Prefect server is told once, not what a run does.

They find their flows' side through the entry point `draftmill.flows`, as runs do.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from typing import Annotated

import typer

from draftmill.cli_dataset import Json
from draftmill.reporting import terminal


def alarms(
    silent_after: Annotated[
        str, typer.Option(metavar="10m", help="Without a heartbeat for so long, a run is marked Crashed.")
    ] = "10m",
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE/NAME", help="A block of the server, which failed runs are told by: slack-webhook/nightly."
        ),
    ] = None,
    webhook_env: Annotated[
        str | None,
        typer.Option(metavar="VARIABLE", help="In place of --notify: the variable with a webhook's URL."),
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Tell runs with quarantined rows as well.")] = False,
    as_json: Json = False,
) -> None:
    """Set the alarms of the configured Prefect server; run again, it changes them.

    Silent runs are marked Crashed, so that they can be retried. With --notify, failed runs and runs that no worker
    takes are told, the likely cause in the first line.

    Example: draftmill alarms --notify slack-webhook/nightly
    """
    (found,) = entry_points(group="draftmill.flows", name="alarms")
    with terminal.listening():
        done: dict[str, str] = found.load()(
            silent_after=silent_after, notify=notify, webhook_env=webhook_env, partial=partial
        )
    if as_json:
        print(json.dumps(done))
        return
    for name, what in done.items():
        terminal.out.print(f"{what}: {name}")
    if not (notify or webhook_env):
        terminal.say("nobody is told of failed runs: --notify TYPE/NAME or --webhook-env VARIABLE does that")
