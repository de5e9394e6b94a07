"""What the page says, put together: the manifest's own words and what its rows were counted to be."""

from __future__ import annotations

from typing import Any

import draftmill
from draftmill.dataset.manifest import Manifest, read_manifest
from draftmill.dataset.storage import Storage
from draftmill.errors import DatasetError
from draftmill.exporting.counts import IdCounts
from draftmill.recipe import dataset_label
from draftmill.records import Reason
from draftmill.reporting.drift_report import drift_report, sets_apart
from draftmill.reporting.drift_table import table_lines
from draftmill.reporting.meanings import meaning
from draftmill.reporting.page.data import PageData, ReasonLine, RoundTrip, Unmeasured
from draftmill.reporting.page.measure import Measured
from draftmill.reporting.page.reading import coverage

APART = ("servers", "course")
"""Of the provenance, what the page shows in places of its own."""


def page_data(
    storage: Storage, manifest: Manifest, found: Measured, counts: IdCounts, trip: RoundTrip | Unmeasured
) -> PageData:
    """All but the rows, whose examples of reasons are still to be named. Reads earlier manifests for the drift."""
    return PageData(
        dataset=storage.url,
        label=dataset_label(storage.url),
        manifest=manifest.version,
        created_at=manifest.created_at.isoformat(),
        parent=manifest.parent.version if manifest.parent else None,
        draftmill=str(manifest.provenance.get("draftmill", draftmill.__version__)),
        good_rows=sum(ref.rows for ref in manifest.shards),
        quarantined_rows=sum(ref.rows for ref in manifest.quarantine),
        rejected=sum(ref.rows for ref in manifest.rejected),
        run=manifest.counts,
        reasons=[ReasonLine(reason, rows, meaning(reason), None) for reason, rows in found.reasons.most_common()],
        finish=dict(found.finish.most_common()),
        cut_in_reasoning=found.cut_in_reasoning,
        measured_rows=found.answering,
        attempts={str(attempt): rows for attempt, rows in sorted(found.attempts.items())},
        lengths={part: plot for part, lengths in found.lengths.items() if (plot := lengths.plot())},
        drift=_drift(storage, manifest, found.reasons[Reason.TRUNCATED]),
        course=manifest.provenance.get("course"),
        arrivals=found.arrivals.lines(),
        servers=manifest.provenance.get("servers") or [],
        coverage=coverage(counts),
        round_trip=trip,
        recipe=manifest.recipe,
        provenance={name: value for name, value in manifest.provenance.items() if name not in APART},
        structures=manifest.structures,
    )


def _drift(storage: Storage, manifest: Manifest, truncated: int) -> dict[str, Any] | None:
    """Of the newest rows, which an earlier manifest may have brought, beside those before; None without any before."""
    now = manifest.statistics
    if now is None:
        return None
    try:
        brought = manifest if now.manifest == manifest.version else read_manifest(storage, now.manifest)
        parent = read_manifest(storage, brought.parent.version) if brought.parent else None
    except DatasetError:  # an old manifest is gone, or damaged: `verify` names it
        return None
    if parent is None or parent.statistics is None:
        return None
    report = drift_report(now, parent.statistics, truncated=truncated, apart=sets_apart(manifest.recipe))
    tables = [
        {"name": name, "lines": [list(line) for line in table_lines(*pair)]} for name, pair in report.groups.items()
    ]
    return {**report.to_json(), "tables": tables}
