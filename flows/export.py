"""Export: datasets as files that a trainer reads."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import State, flow
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from draftmill.exporting.export import Order
from draftmill.exporting.masks import Mask
from draftmill.exporting.selection import Drafter, Longer, Wish
from draftmill.recipe import dataset_label
from flows.parameters import Datasets, Exporter, Length, Seed, Weights
from tasks.ending import followed
from tasks.export import publish_export, write_export


def _run_name() -> str:
    given = flow_run.parameters
    return f"export {', '.join(map(dataset_label, given['datasets']))} to {given['to']}"


@flow(name="export", flow_run_name=_run_name, persist_result=False)
@followed
async def export(
    datasets: Datasets,
    out: Annotated[str, Field(min_length=1)],
    to: Exporter,
    mask: Mask = Mask.COMPLETION,
    max_length: Length = None,
    longer: Longer = Longer.CUT,
    drafter: Drafter = Drafter.EAGLE3,
    split: Annotated[float, Field(ge=0.0, le=0.5)] = 0.0,
    seed: Seed = 0,
    weights: Weights = None,
) -> State[dict[str, Any]]:
    """Write datasets' good rows for a trainer: input_ids and loss_mask, checked by reading them back.

    Args:
        datasets: Folders or s3://bucket/prefix, all of one model.
        out: A new or empty folder, or s3://bucket/prefix.
        to: Who reads it; jsonl is for the eye.
        mask: What is learnt: the whole completion, only its content, or only its reasoning.
        max_length: Ids of a row at most. Without it any number.
        longer: What becomes of longer rows: cut on the right, as trainers do, or dropped.
        drafter: dflash leaves out rows without two supervised ids in a row, too.
        split: Share of the prompts for validation, always the same ones.
        seed: Of the order; without it rows stay in the datasets' order.
        weights: For each dataset in turn, how often its rows stand in the export (0.5: half of them).
    """
    wish, order = Wish(mask, max_length, longer, drafter), Order(split, seed)
    done = await write_export(datasets, out, to, wish, order, weights or [])
    await publish_export(done)
    parts = ", ".join(f"{part.numbers.rows:,} rows in {name}" for name, part in done.parts.items())
    return Completed(message=f"{parts}, read back and found the same", data=done.record)
