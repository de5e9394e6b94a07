"""The drift report: what a run's rows look like beside the last ones, warnings first.

One report, three readers: a few lines for a terminal, a page for Prefect's UI,
the warnings and notes as JSON. Wherever rows cut by length are left out, it says
that this favours short answers: how many rows, and how long they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftmill.dataset.seal import Sealed
from draftmill.dataset.statistics import Statistics
from draftmill.dataset.status import Status
from draftmill.records import Reason
from draftmill.reporting.drift import drift
from draftmill.reporting.drift_table import Group, brief_line, groups, number, table_lines


@dataclass(frozen=True, slots=True)
class DriftReport:
    """`manifest` brought the rows, `compared_with` the ones before (None: there are none).

    `warnings`, `notes`: sentences. `groups`: the numbers, as `drift_table` has them;
    empty where no row is new.
    """

    manifest: int
    compared_with: int | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    groups: dict[str, tuple[Group, Group | None]]

    def to_json(self) -> dict[str, Any]:
        """What is to be read, without the numbers: the manifest has those."""
        return {
            "manifest": self.manifest,
            "compared_with": self.compared_with,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """For a terminal."""
        beside = f" (in brackets: manifest {self.compared_with})" if self.compared_with else ""
        lines = [f"rows new in manifest {self.manifest}{beside}"] if self.groups else []
        lines += [f"  {name}: {brief_line(*pair)}" for name, pair in self.groups.items()]
        return [*lines, *(f"warning: {text}" for text in self.warnings), *(f"note: {text}" for text in self.notes)]

    def markdown(self, dataset: str) -> str:
        """A page of its own."""
        beside = f" beside those of manifest {self.compared_with}" if self.compared_with else ""
        parts = [f"# {dataset}: rows new in manifest {self.manifest}{beside}"]
        said = [*(f"- **warning**: {text}" for text in self.warnings), *(f"- note: {text}" for text in self.notes)]
        parts += ["\n".join(said)] if said else []
        for name, pair in self.groups.items():
            rows = [f"| {' | '.join(line)} |" for line in table_lines(*pair)]
            parts.append("\n".join([f"## {name}", "", "| | now | before | change |", "|---|---:|---:|---:|", *rows]))
        return "\n\n".join(parts)


def drift_report(now: Statistics, before: Statistics | None, *, truncated: int, apart: bool) -> DriftReport:
    """What there is to say about `now` beside `before`.

    `truncated`: rows that the dataset has in quarantine for being cut; `apart`: whether the recipe puts them there.
    """
    return DriftReport(
        now.manifest,
        before.manifest if before else None,
        warnings=tuple(jump.text for jump in drift(now, before)),
        notes=_short_answers(now, truncated, apart=apart),
        groups=groups(now, before),
    )


def sealed_report(sealed: Sealed) -> DriftReport | None:
    """On what a run has sealed: without fresh rows only notes, None when there is nothing to say."""
    manifest = sealed.manifest
    if not sealed.sealed or manifest.statistics is None:
        return None
    truncated, apart = sealed.tally.reasons.get(Reason.TRUNCATED, 0), sets_apart(manifest.recipe)
    if manifest.statistics.manifest == manifest.version:
        return drift_report(manifest.statistics, sealed.before, truncated=truncated, apart=apart)
    notes = _short_answers(manifest.statistics, truncated, apart=apart)
    return DriftReport(manifest.version, None, (), notes, {}) if notes else None


def status_report(status: Status) -> DriftReport | None:
    """On the newest rows of a dataset; None where no manifest has statistics."""
    if status.statistics is None:
        return None
    truncated = status.reasons.get(Reason.TRUNCATED, 0)
    return drift_report(
        status.statistics, status.statistics_before, truncated=truncated, apart=sets_apart(status.recipe)
    )


def sets_apart(recipe: dict[str, Any]) -> bool:
    """Whether a manifest's recipe puts rows cut by length into quarantine."""
    return recipe.get("on_truncated") == "quarantine"


def _short_answers(now: Statistics, truncated: int, *, apart: bool) -> tuple[str, ...]:
    favours = "quarantining truncated rows favours short answers"
    if not truncated:
        return (f"{favours} (on_truncated: quarantine); so far none was cut",) if apart else ()
    ends = (("stopped", "where they ended by themselves"), ("cut", "where they were cut"))
    lengths = now.total.lengths
    means = [f"{number(lengths[part].mean)} ids {words}" for part, words in ends if part in lengths]
    return (
        f"{favours}: {truncated:,} rows that were cut by length are in quarantine; the answers new in manifest "
        f"{now.manifest} have on average {' and '.join(means)}; on_truncated: keep or continue, or a larger "
        "sampling.max_new_tokens, keeps the long ones",
    )
