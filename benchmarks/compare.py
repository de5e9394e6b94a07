"""Runs the contestants in turn, again and again, and writes the medians down.

    python benchmarks/compare.py                            all scenarios, five alternations
    python benchmarks/compare.py --scenario c --repeats 1   a first look

Alternating, because a shared machine's speed drifts: each contestant meets the
same weather. The table goes to stdout and, with command and machine, into
`results/<day>.md`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
from pathlib import Path

from benchmarks.contestants import CONTESTANTS
from benchmarks.machine import command_line, head
from benchmarks.measure import Measured, measure, open_arena
from benchmarks.scenario import SCENARIOS, Scenario
from benchmarks.servers import PrefectServer, prefect_server
from benchmarks.table import section

RESULTS = Path(__file__).parent / "results"

SHARED = "client, fake server and Prefect server share the machine"


def main() -> None:
    given = _parser().parse_args()
    day = dt.date.today().isoformat()
    text = head(command_line(), f"draftmill against a plain loop, {day}", notes=[SHARED])
    with tempfile.TemporaryDirectory(prefix="draftmill-bench-") as place:
        with prefect_server(Path(place)) as prefect:
            for name in given.scenario:
                runs = alternate(SCENARIOS[name], given.contestants, given.repeats, prefect, Path(place))
                text += "\n" + section(SCENARIOS[name], runs)
                write(text, given.out or RESULTS / f"{day}.md")
    print(text)


def write(text: str, path: Path) -> None:
    """After every scenario: an hour's results outlive what may go wrong in the next one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def alternate(
    scenario: Scenario, contestants: list[str], repeats: int, prefect: PrefectServer, folder: Path
) -> dict[str, list[Measured]]:
    """Each contestant once per alternation; who begins changes, so that nobody always follows the same one."""
    arena = open_arena(scenario, prefect, folder)
    runs: dict[str, list[Measured]] = {name: [] for name in contestants}
    for number in range(repeats):
        first = number % len(contestants)
        for name in contestants[first:] + contestants[:first]:
            runs[name].append(measure(arena, name))
            done = runs[name][-1]
            print(f"({scenario.name}) {number + 1}/{repeats} {name}: {done.rows_per_s:.1f} rows/s", file=sys.stderr)
    return runs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/compare.py", description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="alternations; default 5")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: results/<day>.md")
    return parser


if __name__ == "__main__":
    main()
