"""Medians of alternating runs as Markdown: per scenario one line a contestant, spread in brackets.

A ratio to the plain loop is taken inside each alternation and then the median
of those: a machine that gets slower in an hour slows both sides of a ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.contestants import SAYS, YARDSTICK
from benchmarks.measure import Measured
from benchmarks.scenario import Scenario

Runs = Mapping[str, Sequence[Measured]]
"""By contestant, in the order of the alternations."""

HEADS = (
    "contestant",
    "rows/s",
    "of the plain loop",
    "time / perfect refill",
    "CPU ms a row, sending",
    "CPU ms a row, whole process",
    "peak MiB",
    "start s",
    "sealing s",
    "Prefect server, CPU ms a row",
    "fake server, share of a core",
)


def section(scenario: Scenario, runs: Runs) -> str:
    """A scenario's heading and table."""
    lines = [_line(HEADS), _line(["---", *["---:"] * (len(HEADS) - 1)])]
    lines += [_line(_cells(name, runs)) for name in runs if runs[name]]
    return "\n".join([f"## ({scenario.name}) {scenario.says}", "", *lines, ""])


def _cells(name: str, runs: Runs) -> list[str]:
    mine, plain = runs[name], runs.get(YARDSTICK, ())
    ratios = [own.rows_per_s / other.rows_per_s for own, other in zip(mine, plain, strict=False)]
    return [
        SAYS[name],
        _spread([run.rows_per_s for run in mine], 1),
        _spread(ratios, 3),
        _spread([run.of_perfect for run in mine], 3),
        _spread([run.busy_ms for run in mine], 2),
        _spread([run.total_ms for run in mine], 2),
        _spread([run.peak_mib for run in mine], 0),
        _spread([run.start_s for run in mine], 1),
        _spread([run.seal_s for run in mine], 1),
        _spread([run.prefect_ms for run in mine], 2),
        _spread([run.fake_share for run in mine], 2),
    ]


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    middle, least, most = (f"{value:.{digits}f}" for value in (median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}-{most})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
