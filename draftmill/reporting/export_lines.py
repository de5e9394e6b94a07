"""What an export came to, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from draftmill.exporting.export import Exported


def export_lines(done: Exported) -> Iterator[str]:
    """Numbers of each part, what was left out and why, how much of the vocabulary is needed."""
    for name, part in done.parts.items():
        numbers = part.numbers
        share = numbers.supervised / numbers.ids if numbers.ids else 0.0
        yield f"{name}: {numbers.rows:,} rows, {numbers.ids:,} ids, {numbers.supervised:,} supervised ({share:.1%})"
    record = done.record
    for reason, number in record["dropped"].items():
        if number:
            yield f"dropped: {number:,} rows, {reason}"
    if record["cut_rows"]:
        yield f"cut at {record['max_length']:,} ids: {record['cut_rows']:,} rows"
    lost = {what: number for what, number in record["lost_supervised"].items() if number}
    if lost:
        yield "supervised ids lost: " + ", ".join(f"{number:,} of {what}" for what, number in lost.items())
    train = next(iter(done.parts.values()))
    shares = ", ".join(f"{int(size):,}: {share:.2%}" for size, share in train.coverage.items())
    yield f"{train.counts.distinct:,} distinct supervised ids; the most frequent cover {shares}"
    yield f"read back and found the same; {done.out}/export.json says what it is of"
