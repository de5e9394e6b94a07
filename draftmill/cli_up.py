"""`draftmill up`: the options; everything else is in draftmill/up/."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from draftmill.up.ports import DEFAULT_ENGINE, DEFAULT_S3, DEFAULT_UI, Ports


def up(
    home: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where everything lies; default: draftmill's state folder.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Of Prefect's server and UI.")] = DEFAULT_UI,
    s3_port: Annotated[int, typer.Option("--s3-port", min=1, max=65535, help="Of the S3 server.")] = DEFAULT_S3,
    engine_port: Annotated[
        int, typer.Option("--engine-port", min=1, max=65535, help="Of the embedded engine.")
    ] = DEFAULT_ENGINE,
    engine: Annotated[
        bool, typer.Option(help="Start the embedded engine; without, yours is expected on --engine-port.")
    ] = True,
) -> None:
    """Start everything on this machine: Prefect's server and UI, a worker, the deployments, an S3 server, an engine.

    On loopback only, behind generated credentials. Ctrl-C ends it all; the next `up` goes on with the same data.

    Example: draftmill up --port 4201
    """
    from draftmill.up.command import up as run_up
    from draftmill.up.home import default_home

    run_up(home or default_home(), Ports(port, s3_port, engine_port), engine=engine)
