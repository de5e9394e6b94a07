"""The commands that look at a dataset or keep house in it; none of them needs a server or Prefect.

`status`, `show`, `verify` and `diff` write nothing, `report` one page. `compact` adds a manifest,
`gc --delete` removes objects: both change no row. What they import is imported
when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from draftmill.exporting.masks import Mask
from draftmill.reporting import terminal

DatasetUrl = Annotated[str, typer.Argument(metavar="DATASET", help="A folder or s3://bucket/prefix.")]
Json = Annotated[bool, typer.Option("--json", help="Make the last line of stdout one JSON object.")]


def status(
    dataset: DatasetUrl,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="List every rejected prompt, not just the first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a dataset's manifests, counts, reasons, rejected prompts and unfinished rows.

    Example: draftmill status demo-dataset
    """
    from draftmill.dataset.status import dataset_status

    with terminal.listening():
        found = dataset_status(dataset, all_rejected=rejected)
    terminal.print_status(found, as_json=as_json)


def show(
    dataset: DatasetUrl,
    row: Annotated[str, typer.Argument(metavar="ROW", help="A row's number or the start of its key.")],
    mask: Annotated[
        Mask | None, typer.Option("--mask", help="Mark what a trainer would learn from under this loss mask.")
    ] = None,
    find: Annotated[
        int | None, typer.Option("--find", metavar="ID", min=0, help="Show only where this id is, in brackets.")
    ] = None,
) -> None:
    """Show one row, its ids coloured by prompt, reasoning, content and markers.

    Half a character is shown as its bytes.

    Example: draftmill show demo-dataset 0 --mask completion
    """
    from draftmill.reporting.row_view import row_view

    with terminal.listening():
        view = row_view(dataset, row)
    terminal.print_row(view, mask=mask, find=find)


def verify(dataset: DatasetUrl, as_json: Json = False) -> None:
    """Read everything the manifests list and name each fault; what nothing vouches for is said, too.

    Example: draftmill verify demo-dataset
    """
    from draftmill.reporting.verification import verify_dataset

    with terminal.listening():
        verification = verify_dataset(dataset)
    terminal.print_verification(verification, as_json=as_json)
    if verification.faults:
        sys.exit(1)


def diff(
    dataset: DatasetUrl,
    old: Annotated[int | None, typer.Argument(metavar="OLD", min=1, help="A manifest; default: before NEW.")] = None,
    new: Annotated[int | None, typer.Argument(metavar="NEW", min=1, help="A manifest; default: the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Show what changed between two manifests: rows, recipe, how the new rows look. By default the newest two.

    Example: draftmill diff demo-dataset 1 2
    """
    from draftmill.reporting.diff_lines import difference

    with terminal.listening():
        found = difference(dataset, old, new)
    terminal.print_difference(found, as_json=as_json)


def compact(dataset: DatasetUrl, as_json: Json = False) -> None:
    """Join small shards into large ones, as a new manifest with the same rows in the same order.

    The old objects stay for earlier manifests, until `draftmill gc`. A run may go on meanwhile.

    Example: draftmill compact demo-dataset
    """
    from draftmill.dataset.housekeeping import compact_dataset

    with terminal.listening():
        compacted = compact_dataset(dataset)
    terminal.print_compacted(dataset, compacted, as_json=as_json)


def gc(
    dataset: DatasetUrl,
    delete: Annotated[bool, typer.Option("--delete", help="Remove it; without this nothing is changed.")] = False,
    keep: Annotated[int, typer.Option("--keep", min=1, help="Newest manifests whose objects all stay.")] = 3,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="24h or 7d", help="Spare what is younger: a run may be making it.")
    ] = "24h",
    as_json: Json = False,
) -> None:
    """Show, and with --delete remove, what no recent manifest needs: old shards, consumed completions, leftovers.

    Manifests stay, and everything the newest one lists. Earlier manifests lose their rows, not their word: `status`,
    `diff` and `verify` say so.

    Example: draftmill gc demo-dataset --keep 1 --older-than 7d
    """
    from draftmill.dataset.housekeeping import collect_garbage, parse_age

    grace = parse_age(older_than)
    with terminal.listening():
        found = collect_garbage(dataset, delete=delete, keep=keep, grace=grace)
    terminal.print_garbage(dataset, found, deleted=delete, as_json=as_json)


def report(
    dataset: DatasetUrl,
    manifest: Annotated[int | None, typer.Argument(metavar="MANIFEST", min=1, help="Default: the newest.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it there, and nothing into the dataset.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the report page of a manifest again: one HTML file, counts and plots, and rows to look at id by id.

    It lies in the dataset's reports/; a run makes it for each manifest that it seals.

    Example: draftmill report demo-dataset --out report.html
    """
    from draftmill.reporting.page.make import report_dataset

    with terminal.listening():
        made = report_dataset(dataset, manifest, out=out)
    terminal.print_page(dataset, made, as_json=as_json)


COMMANDS = (status, show, verify, diff, report, compact, gc)
