"""Planning and sealing at 10,000, 100,000 and 1,000,000 rows: time and memory.

    python benchmarks/planning.py                              ten minutes, 2 GB in TMPDIR
    python benchmarks/planning.py --sizes 10000 --repeats 1    a first look

Each measurement is a process of its own on a dataset that another one made
(`planning_data`): what it takes and the peak of its memory. The table goes to stdout
and, with command and machine, into `results/<day>-planning.md`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import command_line, head
from benchmarks.planning_data import CASES, answer, build
from draftmill.dataset.chunks import plan_run
from draftmill.dataset.manifest import ObjectRef
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import Storage, open_storage
from draftmill.recipe_file import parse_recipe

RESULTS = Path(__file__).parent / "results"

ROOT = Path(__file__).parents[1]

SIZES = (10_000, 100_000, 1_000_000)

RECIPE = {
    "dataset": "unused",
    "prompts": {"path": "unused"},
    "model": {"name": "none", "context_length": 4096},
    "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
}

PLAN, SLICES = "plan.json", "slices.json"
"""What one process leaves for the next, beside the dataset."""


def main() -> None:
    given = _parser().parse_args()
    if given.step:
        print(json.dumps(STEPS[given.step](Path(given.folder), given.case, given.rows)))
        return
    lines = [_line(HEADS), _line(["---", *["---:"] * (len(HEADS) - 1)])]
    for name, case in CASES.items():
        before: dict[str, tuple[int, float]] = {}
        for rows in given.sizes:
            for step, runs in _measured(name, rows, given.repeats).items():
                cpu_s = median(run["cpu_s"] for run in runs)
                growth = before.get(step)
                before[step] = rows, cpu_s
                factor = "" if growth is None else f"{cpu_s / growth[1] / (rows / growth[0]):.2f}"
                cells = [
                    f"{step}, {case.says}",
                    f"{rows:,}",
                    f"{runs[0]['touched']:,}",
                    _spread([run["seconds"] for run in runs], ".2f"),
                    _spread([run["cpu_s"] for run in runs], ".2f"),
                    _spread([1e6 * run["cpu_s"] / rows for run in runs], ".1f"),
                    factor,
                    _spread([run["peak_mib"] for run in runs], ".0f"),
                    f"{runs[0]['imports_mib']:.0f}",
                ]
                lines.append(_line(cells))
                print(lines[-1], file=sys.stderr)
    table = "\n".join([*lines, ""])
    print(table)
    today = dt.date.today().isoformat()
    out = given.out or RESULTS / f"{today}-planning.md"
    notes = ["local disk; parts of all rows that were ever answered are still there"]
    packages = ("pyarrow", "pandas", "numpy")
    out.write_text(f"{head(command_line(), f'Planning, {today}', notes=notes, packages=packages)}\n{table}")


HEADS = (
    "what",
    "planned rows",
    "rows asked, sealed",
    "seconds",
    "CPU s",
    "CPU µs a planned row",
    "growth",
    "peak MiB",
    "of it imports",
)


def _measured(case: str, rows: int, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """By step its runs."""
    with tempfile.TemporaryDirectory() as folder:

        def step(name: str) -> dict[str, Any]:
            command = [sys.executable, "-m", "benchmarks.planning", "--step", name, "--folder", folder]
            command += ["--case", case, "--rows", str(rows)]
            done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
            found: dict[str, Any] = json.loads(done.stdout)
            return found

        step("build")
        runs = {"plan": [step("plan") for _ in range(repeats)]}
        if step("answer")["touched"]:
            runs["seal"] = [step("seal") for _ in range(repeats)]
        return runs


def _build(folder: Path, case: str, rows: int) -> dict[str, Any]:
    slices = build(_storage(folder), CASES[case], rows)
    (folder / SLICES).write_text(json.dumps(slices))
    return {}


def _plan(folder: Path, case: str, rows: int) -> dict[str, Any]:
    slices = json.loads((folder / SLICES).read_text())
    storage, recipe = _storage(folder), parse_recipe(RECIPE, origin="benchmarks/planning.py")
    with _Timed() as timed:
        plan = plan_run(storage, recipe, rows=slices, rejected=[], again=frozenset())
    places = {name: plan[name] for name in ("planned", "kept", "held", "resumed", "to_ask")}
    if plan["planned"] != rows or sum(places.values()) != 2 * rows:
        raise ValueError(f"the plan does not close: {places}")
    (folder / PLAN).write_text(json.dumps(plan))
    return {"touched": plan["to_ask"] + plan["resumed"], **timed.found}


def _answer(folder: Path, case: str, rows: int) -> dict[str, Any]:
    plan = json.loads((folder / PLAN).read_text())
    refs = answer(_storage(folder), plan)
    (folder / "change.json").write_text(json.dumps([ref.model_dump() for ref in refs]))
    return {"touched": sum(ref.rows for ref in refs)}


def _seal(folder: Path, case: str, rows: int) -> dict[str, Any]:
    storage, plan = _storage(folder), json.loads((folder / PLAN).read_text())
    good = [ObjectRef.model_validate(ref) for ref in json.loads((folder / "change.json").read_text())]
    with _Timed() as timed:
        succession = {"succession": storage.read_table(plan["succession"]["path"])} if plan["succession"] else {}
        sealed = seal(storage, Change(good=good, **succession))
    if not sealed.sealed:
        raise ValueError("nothing was sealed")
    # The next one seals the same night again.
    storage.remove(sealed.manifest.path)
    return {"touched": sum(ref.rows for ref in good), **timed.found}


STEPS: dict[str, Callable[[Path, str, int], dict[str, Any]]] = {
    "build": _build,
    "plan": _plan,
    "answer": _answer,
    "seal": _seal,
}


class _Timed:
    """Seconds of the block, and the process's peak before and after it."""

    def __enter__(self) -> _Timed:
        self._imports_mib, self._start_s, self._cpu_s = _peak_mib(), time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._start_s
        cpu_s = time.process_time() - self._cpu_s
        self.found = {"seconds": seconds, "cpu_s": cpu_s, "peak_mib": _peak_mib(), "imports_mib": self._imports_mib}


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _storage(folder: Path) -> Storage:
    return open_storage(str(folder / "dataset"))


def _spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (format(value, form) for value in (median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}-{most})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/planning.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N", help="planned rows")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each measurement; default 3")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: results/<day>-planning.md")
    for name in ("--step", "--folder", "--case"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
