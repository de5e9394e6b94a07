"""What an export costs: rows a second and the peak of its memory, by exporter.

    python benchmarks/exporting.py                               200,000 rows of 2,000 ids: ten minutes, 15 GB in TMPDIR
    python benchmarks/exporting.py --rows 20000 --repeats 1      a first look

A made-up dataset, its ids as frequent as words are. Each export is a process of its own and
whole: shards compared with their hashes, split, shuffled, written and read back. The
table goes to stdout and, with command and machine, into `results/<day>-exporting.md`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.judging import BLOCK, CLOSE, END, OPEN, PROMPT_IDS, words
from benchmarks.machine import command_line, head
from draftmill.arrays import Ids
from draftmill.dataset.schema import SHARD
from draftmill.dataset.seal import Change, seal
from draftmill.dataset.storage import ObjectRef, Storage, open_storage
from draftmill.exporting.export import Order, export

RESULTS = Path(__file__).parent / "results"

ROOT = Path(__file__).parents[1]

EXPORTERS = ("specforge", "huggingface", "speculators")
"""What trainers read; `jsonl`, for the eye, is a tokenizer's speed."""

SHARD_ROWS = 20_000
"""With 2,000 ids a row about 80 MB: shards as large as a run of that size seals them."""

DRAWN_ROWS = 1_000
"""Rows made at once."""

SPLIT = 0.02

HEADS = ("exporter", "rows", "ids", "seconds", "CPU s", "rows/s", "M ids/s", "peak MiB", "of it imports", "MB written")


def main() -> None:
    given = _parser().parse_args()
    if given.step:
        found = _build(given) if given.step == "build" else _export(given)
        print(json.dumps(found))
        return
    lines = [_line(HEADS), _line(["---", *["---:"] * (len(HEADS) - 1)])]
    with tempfile.TemporaryDirectory(prefix="draftmill-benchmark-") as folder:
        made = _step("build", given, folder)
        for name in given.to:
            lines.append(_measured([_step("export", given, folder, name) for _ in range(given.repeats)], name))
            print(lines[-1], file=sys.stderr)
    table = "\n".join([*lines, ""])
    print(table)
    today = dt.date.today().isoformat()
    notes = [
        f"local disk; a dataset of {made['mb']:,.0f} MB in {made['shards']} shards; a split of {SPLIT}, shuffled",
        "written, hashed, and read back in the same process",
    ]
    title = head(command_line(), f"Export, {today}", notes=notes, packages=("pyarrow", "numpy", "orjson"))
    (given.out or RESULTS / f"{today}-exporting.md").write_text(f"{title}\n{table}")


def _step(name: str, given: argparse.Namespace, folder: str, to: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.exporting", "--step", name, "--folder", folder]
    command += ["--rows", str(given.rows), "--ids", str(given.ids), *(("--to", to) if to else ())]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measured(runs: list[dict[str, Any]], name: str) -> str:
    """A line of the table."""

    def spread(values: list[float], form: str) -> str:
        middle, least, most = (format(value, form) for value in (median(values), min(values), max(values)))
        return middle if len(values) == 1 else f"{middle} ({least}-{most})"

    first = runs[0]
    cells = [name, f"{first['rows']:,}", f"{first['ids']:,}"]
    cells += [spread([run[what] for run in runs], ".0f") for what in ("seconds", "cpu_s")]
    cells += [spread([run["rows"] / run["seconds"] for run in runs], ",.0f")]
    cells += [spread([run["ids"] / run["seconds"] / 1e6 for run in runs], ".1f")]
    cells += [spread([run[what] for run in runs], ".0f") for what in ("peak_mib", "imports_mib")]
    return _line([*cells, f"{first['written_mb']:,.0f}"])


def _export(given: argparse.Namespace) -> dict[str, Any]:
    folder, (to,) = Path(given.folder), given.to
    imports_mib, start_s, cpu_s = _peak_mib(), time.perf_counter(), time.process_time()
    done = export([str(folder / "dataset")], str(folder / "out"), to=to, order=Order(split=SPLIT, seed=1))
    found = {
        "seconds": time.perf_counter() - start_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_mib": _peak_mib(),
        "imports_mib": imports_mib,
        "rows": sum(part.numbers.rows for part in done.parts.values()),
        "ids": sum(part.numbers.ids for part in done.parts.values()),
        "written_mb": sum(file.bytes for part in done.parts.values() for file in part.files) / 1e6,
    }
    if found["rows"] != given.rows:
        raise ValueError(f"{found['rows']} rows of {given.rows} were exported")
    shutil.rmtree(folder / "out")
    return found


def _build(given: argparse.Namespace) -> dict[str, Any]:
    storage = open_storage(str(Path(given.folder) / "dataset"))
    good = [
        _shard(storage, start, min(SHARD_ROWS, given.rows - start), given.ids)
        for start in range(0, given.rows, SHARD_ROWS)
    ]
    recipe = {
        "dataset": "unused",
        "prompts": {"path": "unused"},
        "model": {"name": "none", "context_length": given.ids},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
    }
    seal(storage, Change(good=good, recipe=recipe, structures={"default": BLOCK.to_json()}))
    return {"mb": sum(ref.bytes for ref in good) / 1e6, "shards": len(good)}


def _shard(storage: Storage, start: int, rows: int, ids: int) -> ObjectRef:
    tables = [
        _rows(range(at, min(at + DRAWN_ROWS, start + rows)), ids) for at in range(start, start + rows, DRAWN_ROWS)
    ]
    return storage.put_table("shards", pa.concat_tables(tables))


def _rows(numbers: range, ids: int) -> pa.Table:
    """Rows with reasoning up to their middle."""
    ids_BT: Ids = words(len(numbers), ids, seed=numbers.start)
    middle = ids // 2
    ids_BT[:, PROMPT_IDS - 1], ids_BT[:, middle], ids_BT[:, -1] = OPEN, CLOSE, END
    ended = {"reasoning_end": middle, "finish_reason": "stop", "stop_id": END}
    columns = {
        "row_key": pa.array([_hash(f"row {number}") for number in numbers]),
        "prompt_key": pa.array([_hash(f"prompt {number}") for number in numbers]),
        "prompt_id": pa.array([f"prompts.jsonl:{number}" for number in numbers]),
        "input_ids": pa.ListArray.from_arrays(
            pa.array(np.arange(len(numbers) + 1) * ids, pa.int32()), pa.array(ids_BT.reshape(-1))
        ),
    }
    same = {
        "variant": "default",
        "sample": 0,
        "attempt": 0,
        "prompt_len": PROMPT_IDS,
        "spans": [{"start": PROMPT_IDS, "end": ids, **ended}],
        "max_new_tokens": ids,
        "engine": "none",
        "source": "prompts.jsonl",
        "created_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        **ended,
    }
    arrays = [
        columns[field.name]
        if field.name in columns
        else pa.repeat(pa.scalar(same.get(field.name), field.type), len(numbers))
        for field in SHARD
    ]
    return pa.table(arrays, schema=SHARD)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("benchmarks/exporting.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, metavar="N")
    parser.add_argument("--ids", type=int, default=2_000, metavar="N", help="of a row, its prompt's included")
    parser.add_argument("--to", nargs="+", default=EXPORTERS, metavar="NAME", help="exporters; default: the trainers'")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="of each measurement; default 1")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: results/<day>-exporting.md")
    for name in ("--step", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
