"""`draftmill verify`: the dataset's own checks, and every good row judged again by its manifest's structure."""

from __future__ import annotations

import pyarrow as pa

from draftmill.dataset.manifest import newest
from draftmill.dataset.storage import open_storage
from draftmill.dataset.verify import Judge, Verification, verify
from draftmill.errors import DatasetError
from draftmill.judging.answers import Answers
from draftmill.judging.judge import judge
from draftmill.judging.structure import Structure


def verify_dataset(url: str) -> Verification:
    """Reads everything the newest manifest lists."""
    storage = open_storage(url)
    try:
        manifest = newest(storage)
    except DatasetError:
        manifest = None  # `verify` names the damage; without a manifest there is no structure to judge by
    return verify(storage, judge=_judge_by(manifest.structure, manifest.recipe) if manifest else None)


def _judge_by(structure: dict[str, object], recipe: dict[str, object]) -> Judge:
    rules = Structure.from_json(structure)

    def reasons(table: pa.Table) -> list[str | None]:
        verdicts = judge(
            Answers.of_shard(table),
            rules,
            on_truncated=str(recipe["on_truncated"]),
            degenerate=recipe["degenerate"],  # type: ignore[arg-type]
        )
        listed = (verdicts.reason(b) for b in range(len(verdicts)))
        return [reason and str(reason) for reason in listed]

    return reasons
