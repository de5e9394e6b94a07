"""The numbers of a run, as `--json` prints them, and that they close.

Every planned row is in exactly one place; `check_closed` says so before the
numbers go into a manifest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftmill.errors import DatasetError

if TYPE_CHECKING:  # the numbers are known without pyarrow
    from draftmill.reporting.drift_report import DriftReport

ROW_COUNTS = (
    "planned",
    "kept",
    "held",
    "rejected",
    "resumed",
    "generated",
    "failed",
    "pending",
    "ok",
    "quarantined",
    "carried",
    "dropped",
    "superseded",
    "rejudged",
)


@dataclass(slots=True)
class Summary:
    """What `draftmill run --json` prints, field by field."""

    dataset: str
    manifest: int
    sealed: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    retries: int = 0
    seconds: float = 0.0
    rows: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    chunks: Counter[str] = field(default_factory=Counter)
    attempts: dict[str, int] = field(default_factory=dict)  # good rows of the manifest by attempt: {"0": 90, "1": 10}
    rejudged_bad: int = 0  # those of rows["rejudged"] that went into quarantine; for the exit status only
    left: int = 0  # those of rows["pending"] that a pilot leaves to the run behind it; for the exit status only
    drift: DriftReport | None = None  # of what was sealed

    @property
    def unasked(self) -> int:
        """Pending rows that were to be asked."""
        return max(0, self.rows["pending"] - self.left)

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "manifest": self.manifest,
            "sealed": self.sealed,
            "reasons": dict(sorted(self.reasons.items())),
            "requests": self.requests,
            "retries": self.retries,
            "seconds": round(self.seconds, 3),
            "rows": {name: self.rows[name] for name in ROW_COUNTS},
            "tokens": {name: self.tokens[name] for name in ("prompt", "output")},
            "chunks": {name: self.chunks[name] for name in ("total", "cached", "run", "failed")},
        }

    def to_manifest(self) -> dict[str, Any]:
        """What a manifest keeps of it: what is known before the manifest is written."""
        numbers = self.to_json()
        return {name: numbers[name] for name in ("rows", "reasons", "requests", "retries", "tokens", "chunks")}

    def found(self, before: int, tokens: Mapping[str, int]) -> None:
        """Of the rows that came in, so many were there before the run; the others were generated elsewhere, with these
        tokens of prompts and outputs."""
        there = self.rows["resumed"] + self.rows["generated"]
        self.rows["resumed"] = min(before, there)
        self.rows["generated"] = there - self.rows["resumed"]
        self.tokens = Counter(tokens)

    def add(self, earlier: Summary) -> None:
        """Takes in the rejudging that a rerun did before."""
        self.rows["rejudged"] += earlier.rows["rejudged"]
        self.rejudged_bad += earlier.rejudged_bad
        self.sealed = self.sealed or earlier.sealed
        self.seconds += earlier.seconds
        self.drift = self.drift or earlier.drift


def planned_summary(dataset: str, plan: Mapping[str, Any]) -> Summary:
    """The summary of a plan: `generated` is what would be asked."""
    summary = Summary(dataset, plan["manifest"])
    for name in ("planned", "kept", "held", "carried", "superseded", "resumed"):
        summary.rows[name] = plan[name]
    summary.rows["rejected"] = plan["num_rejected"]
    summary.rows["generated"] = plan["to_ask"]
    summary.rows["dropped"] = plan["dropped"]["rows"] if plan["dropped"] else 0
    summary.reasons.update(plan["rejected_reasons"])
    summary.chunks["total"] = len(plan["chunks"])
    return summary


def add_chunk(
    summary: Summary,
    chunk: Mapping[str, Any],
    *,
    opened: bool,
    cached: bool,
    generated: Mapping[str, Any] | None,
    validated: Mapping[str, Any] | None,
) -> None:
    """One chunk's receipts. `validated` None: nothing of it reached the dataset; what it has waits for the next run."""
    failed = generated["failed"] if generated else 0
    pending = generated["pending"] if generated else 0
    summary.rows["failed"] += failed
    if failed:
        summary.reasons["request_failed"] += failed
    if opened:
        summary.chunks["cached" if cached else "run"] += 1
        summary.chunks["failed"] += not validated or failed + pending > 0
    # A cached chunk was finished by an earlier run: nothing of it was asked now. What was asked and did not reach the
    # dataset comes back without a request, so that no later run counts its tokens.
    if generated is not None and not cached:
        summary.tokens.update(generated["tokens"])
    if generated is None or validated is None:
        summary.rows["pending"] += chunk["num_rows"] - failed
        return
    summary.rows["pending"] += pending
    summary.rows["resumed"] += generated["resumed"] + (generated["generated"] if cached else 0)
    summary.rows["generated"] += 0 if cached else generated["generated"]
    summary.rows["ok"] += validated["ok"]
    summary.rows["quarantined"] += validated["quarantined"]
    summary.reasons.update(validated["reasons"])


def check_closed(summary: Summary) -> None:
    """Raises DatasetError when a row is missing from the counts or stands in two places."""
    rows = summary.rows
    places = ("kept", "held", "rejected", "resumed", "generated", "failed", "pending")
    found = sum(rows[name] for name in places)
    closes = found == rows["planned"] and rows["resumed"] + rows["generated"] == rows["ok"] + rows["quarantined"]
    if not closes or min(rows.values(), default=0) < 0:
        raise DatasetError(
            "the counts of the run do not close, so it is not sealed",
            value={name: rows[name] for name in ROW_COUNTS},
            expected="planned = " + " + ".join(places) + "; resumed + generated = ok + quarantined; none below 0",
            remedy="this is a fault of draftmill: please report it with this message; what was generated is kept",
        )


def exit_code(summary: Summary) -> int:
    """0 complete; 3 rows went newly into quarantine or failed; 5 rows were not asked that were to be."""
    if summary.unasked:
        return 5
    return 3 if summary.rows["quarantined"] or summary.rows["failed"] or summary.rejudged_bad else 0
