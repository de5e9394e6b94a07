"""Statistics of nights to compare: as few words as a test needs."""

from __future__ import annotations

from typing import Any

from draftmill.dataset.statistics import Lengths, Numbers, Statistics


def lengths(mean: float, *, answers: int, sd: float | None = None) -> Lengths:
    """Lengths as models have them: a standard deviation as large as the mean."""
    ranks = {"p10": int(mean * 0.3), "p50": int(mean * 0.8), "p90": int(mean * 2), "p99": int(mean * 4)}
    return Lengths(answers=answers, mean=mean, sd=mean if sd is None else sd, max=int(mean * 6), **ranks)


def numbers(rows: int = 1000, *, share: float | None = 1.0, reasoning: float = 400, **changes: Any) -> Numbers:
    """A variant's numbers; `content`, `cut`, `cut_in_reasoning`, `no_reasoning`, `reasons` by name."""
    content, answers = changes.pop("content", 200), rows - sum(changes.get("reasons", {}).values())
    cut = changes.get("cut", 0)
    parts = {
        "prompt": lengths(90, answers=answers),
        "reasoning": lengths(reasoning, answers=answers),
        "content": lengths(content, answers=answers),
        "output": lengths(reasoning + content, answers=answers),
        "stopped": lengths(reasoning + content - 10, answers=answers - cut),
    }
    if cut:
        parts["cut"] = lengths(4096, answers=cut, sd=0)
    fields = {"prompts": rows, "answers": answers, "cut": 0, "cut_in_reasoning": 0, "no_reasoning": 0, "reasons": {}}
    return Numbers(**{"rows": rows, "share": share, "lengths": parts, **fields, **changes})


def night(manifest: int, **variants: Numbers) -> Statistics:
    """The statistics of a night; the total is right where a test looks at it."""
    groups = list(variants.values())
    total = groups[0].model_copy(
        update={
            "share": None,
            "rows": sum(group.rows for group in groups),
            "prompts": sum(group.prompts for group in groups),
        }
    )
    return Statistics(manifest=manifest, total=total, variants=variants)
