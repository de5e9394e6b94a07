"""`export.json`: what an export is, and of what. The last file written, so a folder without it is none."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import draftmill
from draftmill.exporting.counts import DRAFT_SIZES, IdCounts
from draftmill.exporting.selection import Losses, Wish, total
from draftmill.exporting.sources import ONE_MODEL, Source
from draftmill.exporting.tally import PartNumbers
from draftmill.exporting.vocabulary import Vocabulary

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from draftmill.exporting.gathered import Order

RECORD = "export.json"

SHARE_DIGITS = 6
"""Of a coverage: a millionth of the ids."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of an export."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PartRecord:
    """One part: its numbers, what its rows lost, its files, its supervised ids."""

    numbers: PartNumbers
    losses: Losses
    files: Sequence[FileRecord]
    counts: IdCounts

    @property
    def coverage(self) -> dict[str, float]:
        """Share of the supervised ids that a draft vocabulary of so many ids has."""
        return {str(size): round(self.counts.coverage(size), SHARE_DIGITS) for size in DRAFT_SIZES}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.numbers.to_json(),
            "distinct_supervised": self.counts.distinct,
            "coverage": self.coverage,
            **self.losses.to_json(),
            "files": [asdict(file) for file in self.files],
        }


@dataclass(frozen=True, slots=True)
class Record:
    """The file, as data and as bytes."""

    data: dict[str, Any]
    text: bytes


def record_bytes(
    *,
    to: str,
    sources: Sequence[Source],
    vocabulary: Vocabulary,
    wish: Wish,
    order: Order,
    parts: Mapping[str, PartRecord],
) -> Record:
    """What export.json says."""
    model = sources[0].manifest.recipe["model"]
    data = {
        "draftmill": draftmill.__version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "exporter": to,
        "datasets": [
            {
                "url": source.url,
                "manifest": source.manifest.version,
                "sha256": source.manifest.sha256,
                "weight": source.weight,
            }
            for source in sources
        ],
        "model": {name: model.get(name) for name in ONE_MODEL},
        "vocabulary_size": vocabulary.size,
        "special_ids": dict(vocabulary.special_ids),
        "mask": wish.mask.value,
        "max_length": wish.max_length,
        "longer": wish.longer.value,
        "drafter": wish.drafter.value,
        "split": order.split,
        "seed": order.seed,
        **total(part.losses for part in parts.values()).to_json(),
        "parts": {name: part.to_json() for name, part in parts.items()},
    }
    return Record(data, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())


def write_counts(folder: AbstractFileSystem, part: str, counts: IdCounts) -> str:
    """A part's supervised ids and how often each occurs, as Parquet; its path."""
    path, sink = f"supervised_ids-{part}.parquet", io.BytesIO()
    pq.write_table(counts.to_table(), sink, compression="zstd")
    folder.pipe_file(path, sink.getvalue())
    return path
