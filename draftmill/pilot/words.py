"""An estimate in words: lines for a terminal, a page for Prefect's UI, one line for a run's state."""

from __future__ import annotations

from collections.abc import Iterator

from rich.filesize import decimal

from draftmill.pilot.draws import Range
from draftmill.pilot.estimate import Amounts, Estimate
from draftmill.reporting.progress_page import cell, table

_QUANTILES = ("p10", "p50", "p90", "p99", "max")


def headline(found: Estimate) -> str:
    """The whole in one line."""
    took = f"{_time(found.whole.duration_s)}, " if found.whole.duration_s else ""
    return f"all {found.missing:,} rows: {took}{_count(found.whole.tokens)} output tokens"


def page(found: Estimate, dataset: str) -> str:
    """The estimate in markdown."""
    parts = [
        f"# {cell(dataset)}: pilot",
        f"**{cell(headline(found))}**",
        f"{found.answered:,} of {found.asked:,} rows of the pilot came back; they are in the dataset, and no run asks "
        "them again. In brackets: the range that is right in 9 of 10 pilots.",
        "## What it takes",
        table(("", "the whole", "still to come"), [*_amounts(found)], left=3),
        *([f"**Not yet sure:** {note}" for note in notes(found)]),
        "## Lengths, in ids",
        table(("", "answers", "mean", *_QUANTILES), [*_lengths(found)], left=1),
        "## Verdicts",
        table(("verdict", "rows", "share", "range"), [*_verdicts(found)], left=1),
        "## The recipe",
        table(("key", "now", "better", "why"), [*_advice(found)], left=1),
    ]
    return "\n\n".join(parts)


def lines(found: Estimate) -> list[str]:
    """The same for a terminal."""
    said = [headline(found), "", "                  the whole | still to come"]
    said += [f"  {name:<16}{whole} | {left}" for name, whole, left in _amounts(found)]
    said += [f"  note: {note}" for note in notes(found)]
    said += ["", f"  {'lengths':<24}" + "".join(f"{name:>9}" for name in ("answers", "mean", *_QUANTILES))]
    said += [f"  {name:<24}" + "".join(f"{value:>9}" for value in values) for name, *values in _lengths(found)]
    said += ["", "  verdicts"]
    said += [f"  {name:<24}{rows:>9}{share:>9}  {where}" for name, rows, share, where in _verdicts(found)]
    said += ["", *(f"  {each.key}: {_change(each.now, each.better)}; {each.why}" for each in found.advice)]
    return said


def notes(found: Estimate) -> list[str]:
    """What the ranges do not know."""
    said = []
    if not found.filled and found.whole.duration_s:
        said.append(
            f"the pilot was too short to see {found.places:,} requests at once for long: its duration is a guess; "
            f"--rows {2 * found.places} would show it"
        )
    if found.pace is None:
        said.append("no request was timed (all rows were finished by an earlier run), so there is no duration")
    if found.whole.gpu_hours and not found.gpus:
        said.append("the servers do not say how many GPUs they have: hours are of servers; --gpus N counts GPUs")
    if found.hidden is None:
        said.append("the model's width is not known here, so hidden states are not weighed: --hidden-size N")
    return said


def _amounts(found: Estimate) -> Iterator[tuple[str, str, str]]:
    whole, left = found.whole, found.left
    yield "rows", f"{whole.rows:,}", f"{left.rows:,}"
    yield "output tokens", _count(whole.tokens), _count(left.tokens)
    yield "with prompts", _count(whole.ids), _count(left.ids)
    if whole.duration_s:
        yield "duration", _time(whole.duration_s), _time(left.duration_s)
        yield f"{'GPU' if found.gpus else 'server'} hours", _hours(whole), _hours(left)
    yield "storage", _bytes(whole.storage_bytes), _bytes(left.storage_bytes)
    if found.hidden:
        yield "hidden states", _bytes(whole.hidden_bytes), _bytes(left.hidden_bytes)


def _lengths(found: Estimate) -> Iterator[list[str]]:
    for variant, numbers in found.lengths.items():
        for part in ("prompt", "reasoning", "content", "output"):
            if each := numbers.lengths.get(part):
                values = [getattr(each, name) for name in _QUANTILES]
                name = f"{cell(variant)} {part}".strip()
                yield [name, f"{each.answers:,}", f"{each.mean:,.0f}", *(f"{value:,}" for value in values)]


def _verdicts(found: Estimate) -> Iterator[tuple[str, str, str, str]]:
    for each in found.verdicts:
        yield cell(each.name), f"{each.rows:,}", f"{each.share:.1%}", f"{each.low:.1%} to {each.high:.1%}"


def _advice(found: Estimate) -> Iterator[list[str]]:
    for each in found.advice:
        yield [f"`{each.key}`", f"{each.now:,}", f"{each.better:,}", cell(each.why)]


def _change(now: int, better: int) -> str:
    return f"leave it at {now:,}" if now == better else f"{better:,} in place of {now:,}"


def _ranged(found: Range, word: str, low: str, high: str) -> str:
    return word if found.low == found.high else f"{word} ({low} to {high})"


def _count(found: Range) -> str:
    return _ranged(found, *(_short(value) for value in (found.middle, found.low, found.high)))


def _bytes(found: Range | None) -> str:
    return _ranged(found, *(decimal(round(value)) for value in (found.middle, found.low, found.high))) if found else ""


def _time(found: Range | None) -> str:
    return _ranged(found, *(_clock(value) for value in (found.middle, found.low, found.high))) if found else ""


def _hours(amounts: Amounts) -> str:
    found = amounts.gpu_hours
    return _ranged(found, *(f"{value:,.3g}" for value in (found.middle, found.low, found.high))) if found else ""


def _short(value: float) -> str:
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{name}"
    return f"{value:.0f}"


def _clock(seconds: float) -> str:
    """Two places of a time: 2 d 3 h, 4 h 10 min, 5 min 20 s, 12 s."""
    whole = round(seconds)
    for size, name, below, under in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // below} {under}"
    return f"{seconds:.2g} s"
