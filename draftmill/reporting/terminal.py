"""What the commands print: data on stdout, progress and errors on stderr, colours only on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from draftmill import progress
from draftmill.errors import DraftmillError
from draftmill.reporting.bar import BarListener
from draftmill.reporting.interlinear import Interlinear
from draftmill.reporting.plain_text import plain
from draftmill.reporting.shown_row import row_lines

if TYPE_CHECKING:  # `--help` answers without pyarrow and transformers
    from draftmill.dataset.compact import Compacted
    from draftmill.dataset.gc import Garbage
    from draftmill.dataset.status import Status
    from draftmill.dataset.verify import Verification
    from draftmill.exporting.masks import Mask
    from draftmill.gate import Check
    from draftmill.reporting.diff_lines import Difference
    from draftmill.reporting.page.make import Made
    from draftmill.reporting.row_view import RowView

out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=True)


MANIFESTS_SHOWN = 20
"""The newest ones; `--json` has them all."""

GATE_WIDTH = 100
"""Columns of the gate's tables: wider lines are harder to follow."""

LEVEL_STYLES = {"ok": "green", "warn": "yellow", "refuse": "bold red"}


def say(text: str) -> None:
    """A line of progress or explanation."""
    err.print(Text(text))


def print_error(error: DraftmillError) -> None:
    """The four parts of an error."""
    err.print(Text("error: " + "\n".join(plain(line) for line in str(error).split("\n")), style="red"))


@contextmanager
def listening() -> Iterator[None]:
    """Progress goes to stderr while the block runs."""
    with BarListener(err) as bar, progress.listening(bar):
        yield


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object, on the last line of stdout."""
    print(json.dumps(data, ensure_ascii=False), flush=True)


def print_summary(
    summary: Mapping[str, Any], *, plan: bool, as_json: bool, attempts: Mapping[str, int] | None = None
) -> None:
    """The numbers of a run or of a plan. `attempts`: the manifest's good rows by attempt."""
    rows = {name: number for name, number in summary["rows"].items() if number or name in ("planned", "generated")}
    if plan:
        rows = {"to ask" if name == "generated" else name: number for name, number in rows.items()}
    title = "plan" if plan else f"manifest {summary['manifest']}{'' if summary['sealed'] else ', unchanged'}"
    table = Table("rows", "", title=f"{summary['dataset']}: {title}", title_justify="left", show_header=False)
    for name, number in rows.items():
        table.add_row(name, f"{number:,}")
    for reason, number in summary["reasons"].items():
        table.add_row(f"  {reason}", f"{number:,}")
    out.print(table)
    if not plan:
        tokens = summary["tokens"]
        out.print(
            f"{summary['requests']:,} requests ({summary['retries']:,} repeated), {tokens['output']:,} output tokens, "
            f"{summary['seconds']:.1f} s"
        )
    print_attempts(attempts or {})
    if as_json:
        print_json(summary)


def print_plan(lines: Sequence[str]) -> None:
    """A plan in plain words."""
    for line in lines:
        out.print(Text(line))


def print_drift(lines: Sequence[str], console: Console = err) -> None:
    """The lines of a drift report; warnings stand out."""
    for line in lines:
        console.print(Text(plain(line), style="yellow" if line.startswith("warning") else ""))


def print_page(dataset: str, made: Made, *, as_json: bool) -> None:
    """Where the report page is."""
    out.print(plain(made.place))
    say(f"manifest {made.manifest}, {made.rows:,} of {made.total:,} rows in the page, {decimal(made.bytes)}")
    if as_json:
        print_json({"dataset": dataset, **made.to_json()})


def print_attempts(attempts: Mapping[str, int]) -> None:
    """Good rows by attempt, where any was asked more than once: people are to know what may have been resampled.

    A row alone does not tell whether it was asked again or, cut by length, asked on; so the line names both.
    """
    if set(attempts) - {"0"}:
        counts = ", ".join(f"attempt {attempt} {number:,}" for attempt, number in attempts.items())
        out.print(f"good rows by attempt (asked again, or on): {counts}")


def print_gate(checks: Sequence[Check], *, as_json: bool) -> None:
    """The gate's table, server by server; below it what to do about each line that is not ok."""
    for url in dict.fromkeys(check.url for check in checks):
        of_server = [check for check in checks if check.url == url]
        out.print(_gate_table(url, of_server), width=min(out.width, GATE_WIDTH))
    for check in checks:
        if check.remedy:
            out.print(_level(check), plain(f"{check.url} {check.name}: {check.remedy}"))
    if as_json:
        fields = ("url", "name", "level", "seen", "expected", "remedy")
        print_json({"checks": [{name: str(getattr(check, name)) for name in fields} for check in checks]})


def _gate_table(url: str, checks: Sequence[Check]) -> Table:
    table = Table(title=plain(url), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    # Server by server the same widths, so that two of them can be compared line by line.
    table.add_column("", min_width=max(map(len, LEVEL_STYLES)))
    table.add_column("check", no_wrap=True, min_width=20)
    table.add_column("seen", overflow="fold", ratio=1)
    table.add_column("expected", overflow="fold", ratio=1)
    for check in checks:
        table.add_row(_level(check), check.name, plain(check.seen), plain(check.expected))
    return table


def _level(check: Check) -> Text:
    return Text(check.level.value, style=LEVEL_STYLES[check.level.value])


def print_inspections(inspections: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> None:
    """How a template renders, for each variant. As JSON: the first one's, and with several all of them beside it."""
    for variant, inspection in inspections.items():
        if len(inspections) > 1:
            out.print(Text.assemble((f"{'variant':<26}", "bold"), (plain(variant), "bold cyan")))
        for name, value in inspection.items():
            if name != "evidence":
                out.print(Text.assemble((f"{name:<26}", "bold"), plain(str(value))))
        for line in inspection["evidence"]:
            out.print(f"  - {plain(line)}")
    if as_json:
        first = next(iter(inspections.values()))
        print_json(first if len(inspections) == 1 else {**first, "variants": dict(inspections)})


def print_status(status: Status, *, as_json: bool) -> None:
    """A dataset's manifests, what is not in them, and how their newest rows compare with those before."""
    from draftmill.reporting.drift_report import status_report

    shown = status.manifests[-MANIFESTS_SHOWN:]
    table = Table("manifest", "sealed", "good", "quarantined", title=status.dataset, title_justify="left")
    for version in shown:
        table.add_row(
            str(version.version), version.created_at, f"{version.good_rows:,}", f"{version.quarantined_rows:,}"
        )
    out.print(table)
    if len(shown) < len(status.manifests):
        out.print(f"and {len(status.manifests) - len(shown):,} earlier ones")
    for title, counts in (("quarantined", status.reasons), ("rejected prompts", status.rejected)):
        if counts:
            out.print(f"{title}: " + ", ".join(f"{name} {number:,}" for name, number in counts.items()))
    print_attempts(status.attempts)
    for row in status.rejected_prompts:
        line = f":{row['line']}" if row["line"] is not None else f", {plain(row['prompt_id'])}"
        out.print(f"  {plain(row['source'])}{line}: {row['reason']}: {plain(row['detail'])}")
    if more := sum(status.rejected.values()) - len(status.rejected_prompts):
        out.print(f"  and {more:,} more: --rejected lists them, {' and '.join(status.rejected_objects)} has them")
    for failed in status.failed:
        out.print(f"failed: {plain(failed['prompt_id'])}: {plain(failed['detail'])}")
    out.print(f"unfinished rows (generated, not sealed yet): {status.unfinished:,} in {status.parts:,} parts")
    for folder, size in status.folders.items():
        out.print(f"{plain(folder)}: {_objects(size)}")
    out.print(f"card: {status.card}")
    drift = status_report(status)
    print_drift(drift.lines() if drift else [], out)
    if as_json:
        print_json({**status.to_json(), "drift": drift and drift.to_json()})


def print_difference(difference: Difference, *, as_json: bool) -> None:
    """What changed between two manifests, then how the new one's rows look beside the old one's."""
    out.print(f"{difference.dataset}: manifest {difference.old} -> {difference.new}")
    for line in difference.lines():
        out.print(line)
    print_drift(difference.drift.lines() if difference.drift else [], out)
    if as_json:
        print_json(difference.to_json())


def print_compacted(dataset: str, compacted: Compacted, *, as_json: bool) -> None:
    """What compacting came to."""
    if compacted.manifest is None:
        out.print(f"{dataset}: nothing to compact in {compacted.objects_before:,} objects, no new manifest")
    else:
        objects = f"{compacted.objects_before:,} objects -> {compacted.objects_after:,}"
        out.print(f"{dataset}: manifest {compacted.manifest.version}, {objects}, the same rows")
    if as_json:
        print_json({"dataset": dataset, **compacted.to_json()})


def print_garbage(dataset: str, found: Garbage, *, deleted: bool, as_json: bool) -> None:
    """What may go, or is gone, by folder."""
    kept = ", ".join(str(version) for version in found.kept)
    out.print(f"{dataset}: {'removed' if deleted else 'can be removed'}; the objects of manifests {kept} stay")
    for folder, size in found.folders.items():
        out.print(f"  {folder}: {_objects(size)}")
    if not found.entries:
        out.print("  nothing")
    elif not deleted:
        out.print("nothing was removed: --delete does that")
    if as_json:
        print_json({"dataset": dataset, **found.to_json(deleted=deleted)})


def _objects(size: Mapping[str, int]) -> str:
    return f"{size['objects']:,} objects, {decimal(size['bytes'])}"


def print_row(view: RowView, *, mask: Mask | None = None, find: int | None = None) -> None:
    """A row's columns and where it comes from, then its ids with their text, coloured by part.

    `mask`: also what a trainer learns from; `find`: only the surroundings of this id.
    """
    for line in row_lines(view, mask, find):
        out.print(line, soft_wrap=not isinstance(line, Interlinear))


def print_verification(verification: Verification, *, as_json: bool) -> None:
    """`ok`, or every fault with its file."""
    for fault in verification.faults:
        out.print(f"{plain(fault.file)}: {plain(fault.fault)}")
    for name in verification.not_verified:
        out.print(f"not verified: {plain(name)}")
    verdict = "ok" if verification.ok else f"{len(verification.faults)} faults"
    out.print(f"{verdict}: {verification.rows:,} rows read")
    if as_json:
        faults = [{"file": fault.file, "fault": fault.fault} for fault in verification.faults]
        print_json({"ok": verification.ok, "rows": verification.rows, "faults": faults})
    sys.stdout.flush()
