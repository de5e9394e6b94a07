"""What a dataset is, read from its manifests and what lies beside them. Reads key columns only.

One listing says what lies there and how large it is; nothing is written. Raises
rather than guesses: an object that the newest manifest lists and that is gone is
named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.dataset import completions
from draftmill.dataset.card import card_state
from draftmill.dataset.manifest import Manifest, newest, read_manifest, versions
from draftmill.dataset.schema import REJECTED
from draftmill.dataset.statistics import Statistics
from draftmill.dataset.storage import Storage, open_storage
from draftmill.dataset.stored import listed_table, newest_attempts, row_keys, stored_keys
from draftmill.errors import RecipeError

REJECTED_SHOWN = 10
"""Rejected prompts listed one by one unless all are asked for; the rest are counted."""

READS_AT_ONCE = 8
"""Manifests read in parallel: a dataset has one for each night."""

STORED_COLUMNS = ["row_key", "attempt", "good", "reason"]
"""What is read of every row."""


@dataclass(frozen=True, slots=True)
class Version:
    """One manifest in a line. `created_at`: ISO 8601, UTC."""

    version: int
    created_at: str
    good_rows: int
    quarantined_rows: int


@dataclass(frozen=True, slots=True)
class Status:
    """`reasons`: of the newest manifest's quarantine; `attempts`: its good rows by attempt, {"0": 90, "1": 10}.

    `rejected`: prompts that could not be sent, by reason; `rejected_prompts`: some of them or all, with file, line and
    reason; `rejected_objects`: where all of them are. `unfinished`: completions that no manifest has yet; `parts`: the
    objects they lie in, and those that wait for a row of theirs. `folders`: objects and bytes by folder, whether a
    manifest lists them or not. `card`: `current`, `stale`, `missing` or `unreadable`. `statistics`: of the newest
    manifest that has new rows, `statistics_before`: of the one before it. `recipe`: the newest manifest's.
    """

    dataset: str
    manifests: list[Version]
    reasons: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    rejected_prompts: list[dict[str, Any]] = field(default_factory=list)
    rejected_objects: list[str] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    unfinished: int = 0
    parts: int = 0
    folders: dict[str, dict[str, int]] = field(default_factory=dict)
    card: str = "missing"
    statistics: Statistics | None = None
    statistics_before: Statistics | None = None
    recipe: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All but what a manifest has anyway."""
        statistics = self.statistics and self.statistics.model_dump(mode="json")
        left_out = ("statistics_before", "recipe")
        fields = {name: value for name, value in asdict(self).items() if name not in left_out}
        return {**fields, "statistics": statistics}


def dataset_status(url: str, *, all_rejected: bool = False) -> Status:
    """The status of a dataset. `all_rejected`: lists every rejected prompt, not just the first REJECTED_SHOWN.

    Raises RecipeError when there is none at `url`, DatasetError when it is damaged.
    """
    storage = open_storage(url)
    storage.check()
    manifests = _manifests(storage)
    last = manifests[-1] if manifests else None
    stored = stored_keys(storage, last, STORED_COLUMNS)
    in_parts = completions.unfinished(storage, last.consumed if last else ())
    unfinished, parts = _unfinished(in_parts, stored), len(in_parts["part"].unique())
    if last is None and not unfinished:
        raise _no_dataset(url)
    listed = [
        Version(
            m.version, m.created_at.isoformat(timespec="seconds"), m.counts["good_rows"], m.counts["quarantined_rows"]
        )
        for m in manifests
    ]
    if last is None:
        return Status(url, listed, unfinished=unfinished, parts=parts, folders=_folders(storage))
    now, before = _last_two(manifests)
    columns = [name for name in REJECTED.names if name != "prompt_keys"]  # for people
    listed_rows = (listed_table(storage, ref.path, columns) for ref in last.rejected)
    rejected = pa.concat_tables([REJECTED.empty_table().select(columns), *listed_rows])
    shown = rejected if all_rejected else rejected.slice(0, REJECTED_SHOWN)
    return Status(
        url,
        listed,
        reasons=dict(_counts(stored["reason"])),
        attempts=_attempts(stored),
        rejected=dict(_counts(rejected["reason"])),
        rejected_prompts=shown.to_pylist(),
        rejected_objects=[ref.path for ref in last.rejected],
        failed=last.failed,
        unfinished=unfinished,
        parts=parts,
        folders=_folders(storage),
        card=card_state(storage, last),
        statistics=now,
        statistics_before=before,
        recipe=last.recipe,
    )


def _manifests(storage: Storage) -> list[Manifest]:
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        return list(pool.map(lambda version: read_manifest(storage, version), versions(storage)))


def _folders(storage: Storage) -> dict[str, dict[str, int]]:
    objects: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for entry in storage.entries(""):
        folder = entry.path.split("/")[0]
        objects[folder] += 1
        size[folder] += entry.bytes
    return {folder: {"objects": objects[folder], "bytes": size[folder]} for folder in sorted(objects)}


def _counts(column: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    counted = pc.value_counts(column.cast(pa.string()).drop_null()).to_pylist()
    yield from sorted((pair["values"], pair["counts"]) for pair in counted)


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


def _unfinished(unfinished: pa.Table, stored: pa.Table) -> int:
    """Requests answered in parts but not sealed, nor any later attempt; a part stays until its last row is."""
    waited_for = stored.filter(pc.is_in(stored["row_key"], value_set=unfinished["row_key"].combine_chunks()))
    sealed = newest_attempts(waited_for)
    return sum(attempt > sealed.get(key, -1) for key, attempt in row_keys(unfinished))
