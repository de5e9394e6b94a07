"""`draftmill verify`: the dataset's own checks, and every good row judged again by its manifest's structure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from draftmill.dataset.manifest import newest
from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import Judge, Verification, verify
from draftmill.errors import DatasetError
from draftmill.judging.judged import Rules, judged_table
from draftmill.judging.structure import structures_from_json

NO_STRUCTURE = "of a variant that the manifest has no structure of"
"""Said of a row that nothing can judge: its manifest is not whole."""


def verify_dataset(url: str) -> Verification:
    """Reads everything the newest manifest lists."""
    storage = open_storage(url)
    try:
        manifest = newest(storage)
    except DatasetError:
        manifest = None  # `verify` names the damage; without a manifest there is no structure to judge by
    return verify(storage, judge=_judge_by(manifest.structures, manifest.recipe) if manifest else None)


def _judge_by(structures: dict[str, Any], recipe: dict[str, Any]) -> Judge:
    known = structures_from_json(structures)
    rules = Rules(recipe["on_truncated"], recipe["degenerate"])

    def reasons(table: pa.Table) -> list[str | None]:
        verdicts = judged_table(table, known, rules).verdicts
        return [NO_STRUCTURE if v is None else v.reason and str(v.reason) for v in verdicts]

    return reasons
