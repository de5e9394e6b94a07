"""What the report page says, as plain values: everything but the rows to look at.

Counted by `measure` and its neighbours, shown by `build`; JSON between the two,
so that the page can be made from a file or a test as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

AS_THEY_ARE = (
    *("dataset", "label", "manifest", "created_at", "parent", "draftmill", "attempts", "drift", "course", "servers"),
    *("recipe", "provenance", "structures", "rows"),
)
"""The fields of PageData that are JSON already."""


@dataclass(frozen=True, slots=True)
class ReasonLine:
    """A reason code, how many rows have it, what it means, and the key of one that is in the page."""

    reason: str
    rows: int
    meaning: str
    example: str | None


@dataclass(frozen=True, slots=True)
class LengthPlot:
    """Lengths in ids of `n` answers. `quantiles`: by name, lengths that occur; `bins`: [from, to) and how many."""

    n: int
    mean: float
    quantiles: dict[str, int]
    bins: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the `supervised` ids the most frequent ones are. `at`, `curve`: (how many of them, share)."""

    mask: str
    supervised: int
    distinct: int
    at: list[tuple[int, float]]
    curve: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Of `rows` sampled rows, how many would have other ids after decode and encode; `interval`: of the share, 95 %."""

    rows: int
    changed: int
    interval: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        share = self.changed / self.rows if self.rows else 0.0
        return {"rows": self.rows, "changed": self.changed, "share": share, "interval": list(self.interval)}


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Why there is no round trip."""

    why: str

    def to_json(self) -> dict[str, Any]:
        return {"unavailable": self.why}


@dataclass(frozen=True, slots=True)
class PageData:
    """One manifest. `created_at`: ISO 8601; `run`: the counts the manifest keeps; `finish`: rows by finish reason.

    `course`: as `Course.to_json`, None where no run recorded one; `arrivals`: (unix time in seconds, rows, output
    ids) in equal steps; `rows`: how many there are, how many are in the page, and how these were chosen.
    """

    dataset: str
    label: str
    manifest: int
    created_at: str
    parent: int | None
    draftmill: str
    good_rows: int
    quarantined_rows: int
    rejected: int
    run: Mapping[str, Any]
    reasons: Sequence[ReasonLine]
    finish: Mapping[str, int]
    cut_in_reasoning: int
    measured_rows: int
    attempts: Mapping[str, int]
    lengths: Mapping[str, LengthPlot]
    drift: Mapping[str, Any] | None
    course: Mapping[str, Any] | None
    arrivals: Sequence[tuple[int, int, int]]
    servers: Sequence[Mapping[str, Any]]
    coverage: Coverage
    round_trip: RoundTrip | Unmeasured
    recipe: Mapping[str, Any]
    provenance: Mapping[str, Any]
    structures: Mapping[str, Mapping[str, Any]]
    rows: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What `build.page_html` takes."""
        cut = {"rows": self.cut_in_reasoning, "share": self.cut_in_reasoning / max(1, self.measured_rows)}
        counts = {"good_rows": self.good_rows, "quarantined_rows": self.quarantined_rows, "rejected": self.rejected}
        return {
            **{name: getattr(self, name) for name in AS_THEY_ARE},
            "counts": {**counts, "run": dict(self.run)},
            "reasons": [asdict(line) for line in self.reasons],
            "finish": [{"finish_reason": name, "rows": rows} for name, rows in self.finish.items()],
            "cut_in_reasoning": cut,
            "lengths": {name: asdict(plot) for name, plot in self.lengths.items()},
            "arrivals": [list(line) for line in self.arrivals],
            "coverage": asdict(self.coverage),
            "round_trip": self.round_trip.to_json(),
        }
