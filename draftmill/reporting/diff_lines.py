"""`draftmill diff`: two versions of a dataset side by side, for a terminal and as JSON.

Rows from dataset/diff.py, the recipe's fields and what the rows were made with
leaf by leaf, the new rows' lengths and shares by the drift report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from draftmill.dataset.diff import GOOD, Counts, RowsChanged, diff_rows, pair
from draftmill.dataset.manifest import Manifest
from draftmill.dataset.storage import open_storage
from draftmill.recipe_diff import Changed, recipe_diff
from draftmill.reporting.drift_report import DriftReport, drift_report, sets_apart
from draftmill.reporting.plain_text import plain

PER_RUN = ("servers", "sealed_by", "course")
"""Of the provenance, what differs from run to run and is not how rows are made; `engine` of a row says what counts."""

SHOWN_CHARS = 80
"""Of a value: a list of a hundred prompt files would hide the other lines."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`drift`: of the rows that came with the new version, beside the old one's; None where there is nothing new."""

    dataset: str
    old: int
    new: int
    rows: RowsChanged
    recipe: list[Changed]
    made_with: list[Changed]
    drift: DriftReport | None

    def to_json(self) -> dict[str, Any]:
        rows = self.rows
        return {
            "dataset": self.dataset,
            "old": self.old,
            "new": self.new,
            "rows": {
                "old": rows.old,
                "new": rows.new,
                "added": rows.added,
                "removed": rows.removed,
                "superseded": rows.superseded,
                "moved": [{"from": was, "to": now, "rows": n} for (was, now), n in rows.moved.items()],
                "asked_again": rows.asked_again,
                "rejected": {"old": rows.rejected[0], "new": rows.rejected[1]},
            },
            "recipe": [_json(changed) for changed in self.recipe],
            "made_with": [_json(changed) for changed in self.made_with],
            "drift": self.drift and self.drift.to_json(),
        }

    def lines(self) -> list[str]:
        """For a terminal, without the drift."""
        return [*_row_lines(self.rows), *_field_lines("recipe", self.recipe), *_field_lines("made", self.made_with)]


def difference(url: str, old: int | None = None, new: int | None = None) -> Difference:
    """Two versions of the dataset at `url`, by default the newest two. Raises RecipeError, DatasetError."""
    storage = open_storage(url)
    storage.check()
    before, after = pair(storage, old, new)
    rows = diff_rows(storage, before, after)
    return Difference(
        url,
        before.version,
        after.version,
        rows,
        recipe_diff(before.recipe, after.recipe),
        recipe_diff(_made_with(before), _made_with(after)),
        _drift(before, after, rows),
    )


def _made_with(manifest: Manifest) -> dict[str, Any]:
    provenance = {name: value for name, value in manifest.provenance.items() if name not in PER_RUN}
    # How a structure was derived is told in words; what rows are judged by are its ids.
    structures = {
        name: {part: value for part, value in structure.items() if part != "evidence"}
        for name, structure in manifest.structures.items()
    }
    return {**provenance, "structures": structures}


def _drift(before: Manifest, after: Manifest, rows: RowsChanged) -> DriftReport | None:
    now, then = after.statistics, before.statistics
    if now is None or (then is not None and then.manifest == now.manifest):
        return None
    truncated, apart = rows.new.get("truncated", 0), sets_apart(after.recipe)
    return drift_report(now, then, truncated=truncated, apart=apart)


def _row_lines(rows: RowsChanged) -> Iterator[str]:
    yield f"rows: {_total(rows.old):,} -> {_total(rows.new):,}, good {_good(rows.old):,} -> {_good(rows.new):,}"
    for what in ("added", "removed", "superseded"):
        counts: Counts = getattr(rows, what)
        if counts:
            told = ", ".join(f"{name} {number:,}" for name, number in counts.items())
            yield f"  {what} {_total(counts):,}: {told}"
    for (was, now), number in rows.moved.items():
        yield f"  moved {number:,}: {was} -> {now}"
    if rows.asked_again:
        yield f"  asked again, standing the same: {rows.asked_again:,}"
    if not any((rows.added, rows.removed, rows.superseded, rows.moved, rows.asked_again)):
        yield "  the same rows"
    before, after = rows.rejected
    for reason in sorted({*before, *after}):
        if before.get(reason, 0) != after.get(reason, 0):
            yield f"rejected prompts, {reason}: {before.get(reason, 0):,} -> {after.get(reason, 0):,}"


def _field_lines(title: str, changes: list[Changed]) -> Iterator[str]:
    for changed in changes:
        yield f"{title}: {plain(changed.field)}: {_shown(changed.old)} -> {_shown(changed.new)}"


def _json(changed: Changed) -> Mapping[str, Any]:
    return {"field": changed.field, "old": changed.old, "new": changed.new}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return plain(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")


def _total(counts: Counts) -> int:
    return sum(counts.values())


def _good(counts: Counts) -> int:
    return counts.get(GOOD, 0)
