"""The final numbers of a seal: what only the commit knows, since it meets what others sealed meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.merge import Fate, Merged
from draftmill.dataset.recount import Recount
from draftmill.dataset.storage import ObjectRef


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows of the manifest (`good_rows`, `quarantined_rows`) and of this seal (the rest).

    `held`: row_keys that have quarantined rows only; a row_key has one good row at
    most, so that `good_rows + held` are the manifest's distinct row_keys.
    `attempts`: good rows by attempt, as a manifest's JSON has it: {"0": 90, "1": 10}.
    `reasons`: quarantined rows by reason. `superseded`: left for their successors.
    `replaced`: older attempts that left for newer ones. `moved`: judged anew, that
    is named in `dropped` and brought again. `yielded`: rows of the change that gave
    way to what another run has sealed or removed of their row_key, as (their reason,
    None for good ones; whether a good row stands for them) -> how many. `recount`: of the
    planned rows that the change does not bring; None where nothing was sealed since
    the plan, or nothing was planned.
    """

    good_rows: int
    quarantined_rows: int
    held: int
    attempts: Mapping[str, int]
    reasons: Mapping[str, int]
    superseded: int = 0
    replaced: int = 0
    dropped: int = 0
    moved: int = 0
    yielded: Counter[tuple[str | None, bool]] = field(default_factory=Counter)
    recount: Recount | None = None

    def to_counts(self) -> dict[str, Any]:
        """What every manifest's counts have."""
        return {
            "good_rows": self.good_rows,
            "quarantined_rows": self.quarantined_rows,
            "held_rows": self.held,
            "attempts": dict(self.attempts),
            "quarantined": dict(self.reasons),
        }


def tally_of(manifest: Manifest) -> Tally:
    """Of a seal that leaves this manifest as it is: nothing is read."""
    counts = manifest.counts
    return Tally(
        counts["good_rows"], counts["quarantined_rows"], counts["held_rows"], counts["attempts"], counts["quarantined"]
    )


def final_tally(
    merged: Merged, shards: Sequence[ObjectRef], quarantine: Sequence[ObjectRef], recount: Recount | None
) -> Tally:
    """Of merged rows, which now lie in these objects."""
    return Tally(
        good_rows=sum(ref.rows for ref in shards),
        quarantined_rows=sum(ref.rows for ref in quarantine),
        held=merged.held,
        attempts={str(attempt): number for attempt, number in sorted(merged.attempts.items())},
        reasons=dict(sorted(merged.reasons.items())),
        superseded=merged.count(Fate.SUPERSEDED),
        replaced=merged.count(Fate.REPLACED),
        dropped=merged.count(Fate.DROPPED) - merged.moved,
        moved=merged.moved,
        yielded=_yielded(merged),
        recount=recount,
    )


def _yielded(merged: Merged) -> Counter[tuple[str | None, bool]]:
    rows = merged.rows
    left = rows[rows["new"] & (rows["fate"] != Fate.STAYS)]
    if left.empty:
        return Counter()
    standing = rows.loc[(rows["fate"] == Fate.STAYS) & rows["good"], "row_key"]
    reasons = [None if good else reason for good, reason in zip(left["good"], left["reason"], strict=True)]
    return Counter(zip(reasons, left["row_key"].isin(standing).tolist(), strict=True))
