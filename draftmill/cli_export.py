"""`draftmill export`: a dataset, or several mixed, as files that a trainer reads. Needs no server and no Prefect."""

from __future__ import annotations

from typing import Annotated

import typer

from draftmill.cli_dataset import Json
from draftmill.errors import RecipeError
from draftmill.exporting.masks import Mask
from draftmill.exporting.selection import Drafter, Longer
from draftmill.reporting import terminal


def export(
    places: Annotated[
        list[str], typer.Argument(metavar="DATASET... OUT", help="Datasets, then a new folder or s3://bucket/prefix.")
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="NAME", help="specforge, speculators, huggingface, or jsonl for the eye.")
    ],
    mask: Annotated[
        Mask, typer.Option(help="What is learnt: the completion, only its content, or only its reasoning.")
    ] = Mask.COMPLETION,
    max_length: Annotated[int | None, typer.Option(min=2, help="Ids of a row at most; default: any number.")] = None,
    longer: Annotated[
        Longer, typer.Option(help="What becomes of longer rows: cut on the right, as trainers do, or dropped.")
    ] = Longer.CUT,
    drafter: Annotated[
        Drafter, typer.Option(help="dflash leaves out rows without two supervised ids in a row, too.")
    ] = Drafter.EAGLE3,
    split: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="Share of the prompts for validation, always the same ones.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the order.")] = 0,
    shuffle: Annotated[bool, typer.Option(help="Without: rows in the datasets' order, one after the other.")] = True,
    weight: Annotated[
        list[float] | None,
        typer.Option(min=0.0, help="For each dataset in turn: how often its rows stand in the export (0.5: half)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write good rows for a trainer: input_ids and loss_mask, checked by reading them back.

    Ids are taken as they are; nothing is tokenized. OUT gets an export.json with versions, mask, split and counts.

    Example: draftmill export demo-dataset --to specforge --mask completion --split 0.02 demo-export
    """
    from draftmill.exporting.export import Order
    from draftmill.exporting.export import export as export_rows
    from draftmill.exporting.selection import Wish
    from draftmill.reporting.export_lines import export_lines

    *datasets, out = places
    if not datasets:
        raise RecipeError(
            "an export goes from somewhere to somewhere",
            value=out,
            expected="DATASET... OUT: one dataset or several, then the folder to write",
            remedy="name both",
        )
    wish = Wish(mask, max_length, longer, drafter)
    with terminal.listening():
        done = export_rows(
            datasets, out, to=to, wish=wish, order=Order(split, seed if shuffle else None), weights=weight or ()
        )
    for line in export_lines(done):
        terminal.out.print(line)
    if as_json:
        terminal.print_json(done.record)
