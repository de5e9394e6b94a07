"""`draftmill audit`: stored rows back to the servers, for log-probabilities. Needs no Prefect."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from draftmill.cli_dataset import DatasetUrl, Json
from draftmill.errors import RunStopped
from draftmill.reporting import terminal


def audit(
    dataset: DatasetUrl,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many good rows, evenly by key.")] = 100,
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="KEY", help="This row instead: the start of its key.")
    ] = None,
    manifest: Annotated[int | None, typer.Option("--manifest", min=1, help="Default: the newest.")] = None,
    url: Annotated[
        list[str] | None, typer.Option("--url", metavar="URL", help="Servers in place of the recipe's.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, max=20, help="Nats within which two ids count as equally likely.")
    ] = 0.5,
    as_json: Json = False,
) -> None:
    """Send stored rows back to their servers for log-probabilities: are these ids the served model's own?

    The servers must pass the gate. Writes nothing. Exit status 1 when a row is suspicious; 5 when the servers went away
    before all were asked.

    Example: draftmill audit demo-dataset --rows 20 --url http://127.0.0.1:30000
    """
    from draftmill.audit.audit import audit_dataset
    from draftmill.audit.verdict import Verdict
    from draftmill.reporting.audit_lines import audit_lines, row_pieces
    from draftmill.reporting.interlinear import Interlinear

    with terminal.listening():
        found = audit_dataset(
            dataset, rows=rows, named=row or (), version=manifest, servers=url or (), tolerance=tolerance
        )
        pieces = row_pieces(found)
    for line in audit_lines(found, pieces):
        terminal.out.print(line, soft_wrap=not isinstance(line, Interlinear))
    if as_json:
        terminal.print_json(found.to_json())
    if found.verdict is not Verdict.OWN:
        sys.exit(1)
    if found.stopped:
        sys.exit(RunStopped.exit_code)
