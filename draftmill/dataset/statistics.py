"""What the rows of a run look like, in numbers: the manifest's `statistics`.

Only of rows that are fresh, that is new in their manifest under a row_key that
no earlier row had: lengths of a whole dataset move too slowly to show that last
night was different, and rows asked again were chosen by what came of them. A
manifest without fresh rows carries its parent's numbers on, so that there is
always something to compare with. Counts and ids only, from a few columns; no id
list is read.

An answer is a generated span. Lengths are of the answers of good rows and of
rows that are in quarantine for being cut only, so that `on_truncated` does not
move them. `prompt`: ids before the span. `reasoning`: its ids up to and with
the closing marker (an opening marker counts where the model writes it, not
where the prompt has it); up to the end where it was cut inside. `content`: the
ids behind, without the one that ended the turn. So reasoning + content + that
id = `output`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from draftmill.dataset.schema import QUARANTINE
from draftmill.records import Reason, Thinking

MEASURED = pa.schema([QUARANTINE.field(name) for name in ("variant", "prompt_key", "spans", "reason")])
"""The columns the numbers are made of (see `stored.measured_rows`); `reason` null for good rows."""

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}

DIGITS = 2
"""Of a mean or standard deviation: a hundredth of an id."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Lengths(_Part):
    """The lengths of `answers` answers in ids. Quantiles are lengths that occur (nearest rank)."""

    answers: int
    mean: float
    sd: float
    p10: int
    p50: int
    p90: int
    p99: int
    max: int


class Numbers(_Part):
    """Of one variant, or of all together.

    `prompts`: distinct ones; `share`: the recipe's share of the prompts, null
    for all together. `reasons`: rows in quarantine. Then of the answers that
    are measured (see above): `cut` by length, `cut_in_reasoning` of those,
    `no_reasoning`. `lengths`: of prompt, reasoning (of those that reason),
    content (of those not cut inside reasoning), output; `stopped`, `cut`: output
    of those that ended by themselves and of the others. One without answers is
    left out.
    """

    rows: int
    prompts: int
    share: float | None
    reasons: dict[str, int]
    answers: int
    cut: int
    cut_in_reasoning: int
    no_reasoning: int
    lengths: dict[str, Lengths]


class Statistics(_Part):
    """Of the rows that came with `manifest`. `variants`: every one that the recipe or a row names."""

    manifest: int
    total: Numbers
    variants: dict[str, Numbers]


def statistics(
    rows: pa.Table, *, manifest: int, structures: Mapping[str, Mapping[str, Any]], recipe: Mapping[str, Any]
) -> Statistics:
    """The numbers of fresh rows (MEASURED columns) that come with this manifest.

    `structures`: by variant, as JSON; where a variant has none, or it never
    opens reasoning, an answer without the end of one has no reasoning.
    """
    shares = {variant["name"]: float(variant["share"]) for variant in recipe.get("variants") or ()}
    frame = rows.select(["variant", "prompt_key", "reason"]).to_pandas()
    answers = answers_of(rows, opened_variants(structures))
    names = [*shares, *sorted(set(frame["variant"]) - set(shares))]
    return Statistics(
        manifest=manifest,
        total=_numbers(frame, answers, None),
        variants={
            name: _numbers(
                frame[frame["variant"] == name],
                answers[answers["variant"] == name],
                shares.get(name, 0.0 if shares else 1.0),
            )
            for name in names
        },
    )


def opened_variants(structures: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The variants whose answers reason, by their structures as JSON."""
    thinks = (Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL)
    return {name for name, structure in structures.items() if structure.get("thinking") in thinks}


def answers_of(rows: pa.Table, opened: Collection[str]) -> pd.DataFrame:
    """One line an answer of the rows (MEASURED columns) whose lengths count; `row`: its place among those rows."""
    counts = pc.fill_null(pc.equal(rows["reason"], Reason.TRUNCATED.value), False)
    rows = rows.filter(pc.or_(pc.is_null(rows["reason"]), counts)).combine_chunks()
    spans = rows["spans"].combine_chunks()
    flat, of_row = pc.list_flatten(spans), pc.list_parent_indices(spans)
    start, end, closed_at = (
        pc.fill_null(pc.struct_field(flat, name), -1).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("start", "end", "reasoning_end")
    )
    closed = closed_at >= 0
    by_length = pc.fill_null(pc.equal(pc.struct_field(flat, "finish_reason"), "length"), False)
    cut = by_length.to_numpy(zero_copy_only=False)
    stop = pc.is_valid(pc.struct_field(flat, "stop_id")).to_numpy(zero_copy_only=False)
    variant = rows["variant"].take(of_row).to_pandas()
    inside = cut & ~closed & variant.isin(list(opened)).to_numpy(bool)
    return pd.DataFrame(
        {
            "row": of_row.to_numpy(),
            "variant": variant,
            "cut": cut,
            "inside": inside,
            "thinks": closed | inside,
            "prompt": start,
            "reasoning": np.where(closed, closed_at + 1, np.where(inside, end, start)) - start,
            "content": end - np.where(closed, closed_at + 1, np.where(inside, end, start)) - stop,
            "output": end - start,
        }
    )


def lengths_of(answers: pd.DataFrame) -> dict[str, pd.Series[int]]:
    """By part the lengths that count: reasoning of the answers that have it, content of those not cut before it."""
    return {
        "prompt": answers["prompt"],
        "reasoning": answers.loc[answers["thinks"], "reasoning"],
        "content": answers.loc[~answers["inside"], "content"],
        "output": answers["output"],
    }


def _numbers(rows: pd.DataFrame, answers: pd.DataFrame, share: float | None) -> Numbers:
    parts = {
        **lengths_of(answers),
        "stopped": answers.loc[~answers["cut"], "output"],
        "cut": answers.loc[answers["cut"], "output"],
    }
    return Numbers(
        rows=len(rows),
        prompts=int(rows["prompt_key"].nunique()),
        share=share,
        reasons=dict(sorted(Counter(rows["reason"].dropna()).items())),
        answers=len(answers),
        cut=int(answers["cut"].sum()),
        cut_in_reasoning=int(answers["inside"].sum()),
        no_reasoning=int((~answers["thinks"]).sum()),
        lengths={name: _lengths(part.to_numpy()) for name, part in parts.items() if len(part)},
    )


def _lengths(values_B: npt.NDArray[np.int64]) -> Lengths:
    ordered = np.sort(values_B)
    ranks = {name: int(ordered[math.ceil(share * len(ordered)) - 1]) for name, share in QUANTILES.items()}
    mean, sd = (round(float(number), DIGITS) for number in (np.mean(ordered), np.std(ordered)))
    return Lengths(answers=len(ordered), mean=mean, sd=sd, max=int(ordered[-1]), **ranks)
