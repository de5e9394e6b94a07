"""What a dataset is, read from its manifests and what lies beside them. Reads key columns only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset import completions
from draftmill.dataset.manifest import Manifest, newest, read_manifest, versions
from draftmill.dataset.statistics import Statistics
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import listed_table, newest_attempts, row_keys, stored_keys
from draftmill.errors import RecipeError

REJECTED_SHOWN = 10
"""Rejected prompts listed one by one; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Version:
    """One manifest in a line. `created_at`: ISO 8601, UTC."""

    version: int
    created_at: str
    good_rows: int
    quarantined_rows: int


@dataclass(frozen=True, slots=True)
class Status:
    """`reasons`: of the newest manifest's quarantine; `attempts`: its good rows by attempt, {"0": 90, "1": 10};
    `unfinished`: completions that no manifest has yet. `statistics`: of the newest manifest that has new rows, and
    `statistics_before` of the one before it. `recipe`: the newest manifest's."""

    dataset: str
    manifests: list[Version]
    reasons: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    rejected_prompts: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    unfinished: int = 0
    statistics: Statistics | None = None
    statistics_before: Statistics | None = None
    recipe: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All but what a manifest has anyway."""
        statistics = self.statistics and self.statistics.model_dump(mode="json")
        left_out = ("statistics_before", "recipe")
        fields = {name: value for name, value in asdict(self).items() if name not in left_out}
        return {**fields, "statistics": statistics}


def dataset_status(url: str) -> Status:
    """The status of a dataset. Raises RecipeError when there is none at `url`, DatasetError when it is damaged."""
    storage = open_storage(url)
    manifests = [read_manifest(storage, version) for version in versions(storage)]
    last = manifests[-1] if manifests else None
    stored = stored_keys(storage, last)
    unfinished = _num_unfinished(storage, last, stored)
    if last is None and not unfinished:
        raise _no_dataset(url)
    listed = [
        Version(
            m.version, m.created_at.isoformat(timespec="seconds"), m.counts["good_rows"], m.counts["quarantined_rows"]
        )
        for m in manifests
    ]
    if last is None:
        return Status(url, listed, unfinished=unfinished)
    now, before = _last_two(manifests)
    rejected = [row for ref in last.rejected for row in listed_table(storage, ref.path).to_pylist()]
    return Status(
        url,
        listed,
        reasons=dict(sorted(Counter(filter(None, stored["reason"].to_pylist())).items())),
        attempts=_attempts(stored),
        rejected=dict(sorted(Counter(row["reason"] for row in rejected).items())),
        rejected_prompts=rejected[:REJECTED_SHOWN],
        failed=last.failed,
        unfinished=unfinished,
        statistics=now,
        statistics_before=before,
        recipe=last.recipe,
    )


def _last_two(manifests: Sequence[Manifest]) -> tuple[Statistics | None, Statistics | None]:
    """The last two manifests that brought rows; those that brought none repeat the one before."""
    found = {m.statistics.manifest: m.statistics for m in manifests if m.statistics}
    last = [None, None, *(found[version] for version in sorted(found))]
    return last[-1], last[-2]


def existing(storage: Storage) -> Manifest:
    """The newest manifest. Raises RecipeError when there is none, DatasetError when it is damaged."""
    manifest = newest(storage)
    if manifest is None:
        raise _no_dataset(storage.url)
    return manifest


def _no_dataset(url: str) -> RecipeError:
    return RecipeError(
        "no dataset there",
        value=url,
        expected="a folder or prefix with manifests/",
        remedy="correct the path, or make it with `draftmill run`",
    )


def _attempts(stored: pa.Table) -> dict[str, int]:
    """Counted, not read from `counts`: a manifest of an older draftmill has none."""
    counts = Counter(stored.filter(pc.field("good"))["attempt"].to_pylist())
    return {str(attempt): number for attempt, number in sorted(counts.items())}


def _num_unfinished(storage: Storage, last: Manifest | None, stored: pa.Table) -> int:
    """Requests answered in parts but not sealed, nor any later attempt; a part stays until its last row is."""
    unfinished = completions.unfinished(storage, last.consumed if last else ())
    sealed = newest_attempts(stored)
    return sum(attempt > sealed.get(key, -1) for key, attempt in row_keys(unfinished))
