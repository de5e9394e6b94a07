"""What a plan must know of conversations whose turns are rows: which can be asked, and which belong together.

A turn is asked on top of the turns before it. What stands on a turn that is held,
or that was cut by length and is not asked again, is held itself: nothing can be
asked there. Rows of one first prompt stay in one chunk, since they may share
turns: two conversations that begin alike are one until they part. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from draftmill.records import HistoryMode

ANCESTORS = pa.schema(
    [
        ("row_key", pa.string()),
        ("attempt", pa.int32()),
        ("object", pa.string()),  # the shard that has it
    ]
)

Place = tuple[int, str]
"""An attempt of a turn and the object that has it."""

Earlier = Sequence[str]
"""The row_keys of the turns before a row's last, in order."""


def earlier_turns(planned: pa.Table, mode: HistoryMode) -> dict[str, Earlier]:
    """By row_key, for the planned rows of a mode: the turns before each."""
    rows = planned.filter(pc.equal(planned["history"], mode.value))
    return dict(zip(rows["row_key"].to_pylist(), rows["earlier"].to_pylist(), strict=True))


def blocked(
    turns: Mapping[str, Earlier], *, missing: Collection[str], resumed: Collection[str], settled: Collection[str]
) -> set[str]:
    """The missing turns that cannot be asked. `turns`: of rewritten history; `settled`: good, with their end."""
    found: set[str] = set()
    ready: dict[str, bool] = {}
    for key, earlier in sorted(turns.items(), key=lambda turn: len(turn[1])):
        stands = not earlier or ready.get(earlier[-1], False)
        if key in missing and key not in resumed and not stands:
            found.add(key)
        ready[key] = stands and (key in missing or key in settled)
    return found


def roots(planned: pa.Table) -> list[str] | None:
    """The first turn of each planned row; None where no row has another turn."""
    if planned["history"].null_count == planned.num_rows:
        return None
    keys, earlier = planned["row_key"].to_pylist(), planned["earlier"].to_pylist()
    return [before[0] if before else key for key, before in zip(keys, earlier, strict=True)]


def together(missing: pa.Table, roots: Sequence[str], chunk_rows: int) -> list[pa.Table]:
    """Missing rows in chunks of about `chunk_rows`, in source order by the first row of each root."""
    groups: dict[str, list[int]] = {}
    for place, index in enumerate(missing["index"].to_pylist()):
        groups.setdefault(roots[index], []).append(place)
    chunks: list[list[int]] = []
    for places in groups.values():
        if not chunks or len(chunks[-1]) >= chunk_rows:
            chunks.append([])
        chunks[-1] += places
    return [missing.take(pa.array(sorted(places), pa.int64())) for places in chunks]


def newest_good(turns: Iterable[str], stored: pa.Table) -> dict[str, Place]:
    """Where each of these turns is sealed, as far as it is: its newest good attempt. `stored`: STORED."""
    wanted = set(turns)
    found: dict[str, Place] = {}
    if not wanted:
        return found
    good = stored.filter(stored["good"]).select(ANCESTORS.names)
    for key, attempt, path in zip(*(good[name].to_pylist() for name in ANCESTORS.names), strict=True):
        if key in wanted and attempt > found.get(key, (-1, ""))[0]:
            found[key] = attempt, path
    return found


def ancestors(needed: Iterable[str], sealed: Mapping[str, Place]) -> pa.Table:
    """Where the sealed turns lie that others are asked on top of: ANCESTORS. `sealed`: see `newest_good`."""
    found = [(key, *sealed[key]) for key in sorted(needed) if key in sealed]
    return pa.Table.from_pylist([dict(zip(ANCESTORS.names, turn, strict=True)) for turn in found], ANCESTORS)


def parts_of(turns: Iterable[str], generated: pa.Table) -> dict[str, list[Place]]:
    """By turn the attempts that parts have of it, and which part. `generated`: GENERATED."""
    wanted = set(turns)
    found: dict[str, list[Place]] = {}
    columns = (generated[name].to_pylist() for name in ("row_key", "attempt", "part"))
    for key, attempt, part in zip(*columns, strict=True):
        if key in wanted:
            found.setdefault(key, []).append((attempt, part))
    return found
