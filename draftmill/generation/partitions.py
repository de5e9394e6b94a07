"""A run's chunks over several machines: who gets which, how hard each may drive the servers, how each ended. Pure.

Promises: every chunk with rows to ask is dealt to exactly one partition; the
in-flight shares add up to the recipe's budget, so that the servers never see more
than from one machine. There are never more partitions than chunks or requests.

A partition tells how it stands by a report, which counts up while it lives: one
whose report stands still for SILENT_S is taken for dead, whatever anybody else
says of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from draftmill.errors import DatasetError, DraftmillError, GateRefused, RunStopped, kinds

BEAT_S = 20.0
"""Seconds between two reports of a partition: what its numbers lose when it is killed."""

SILENT_S = 300.0
"""Seconds of a report that stands still: longer than any pause of a healthy process, short against a night."""

LEASE_S = SILENT_S - 60.0
"""Seconds since a partition was last seen until it asks no more: before its rows are dealt to another one."""

START_S = 600.0
"""Seconds a partition may wait for a worker: a machine starts in less, and nobody else waits for it meanwhile."""

ROUNDS = 2
"""How often rows are dealt: once more when partitions died, and not for ever when something kills them all."""


def deal(chunks: Sequence[Mapping[str, Any]], partitions: int, in_flight: int) -> list[list[Mapping[str, Any]]]:
    """The chunks with rows to ask, partition by partition, each in the order of the plan; none is empty.

    Each chunk goes to the partition with the fewest rows so far, so that all end together.
    """
    to_ask = [chunk for chunk in chunks if left(chunk)]
    hands: list[list[Mapping[str, Any]]] = [[] for _ in range(min(partitions, len(to_ask), in_flight))]
    for chunk in to_ask:
        min(hands, key=lambda hand: sum(map(left, hand))).append(chunk)
    return hands


def left(chunk: Mapping[str, Any]) -> int:
    """A chunk's rows to ask."""
    return int(chunk["num_rows"]) - int(chunk["resumed"])


def in_flight_shares(in_flight: int, partitions: int) -> list[int]:
    """Requests at once per URL of each partition: their sum is `in_flight`; each at least 1 of at most `in_flight`
    partitions."""
    share, more = divmod(in_flight, partitions)
    return [share + (number < more) for number in range(partitions)]


@dataclass(slots=True)
class Report:
    """How a partition stands. `chunks`: the receipts of the chains that are over, by the hash of the chunk's rows;
    `failed`: the last words of all its rows that failed, by row_key, of which receipts name some; `beat`: grows while
    it lives, 0 before it came to anything; `stopped`: why it asked no more; `ended`: this is its last."""

    beat: int = 0
    ended: bool = False
    requests: int = 0
    retries: int = 0
    done: int = 0
    tokens: int = 0
    chunks: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def error(self) -> DraftmillError | None:
        """`stopped` as an error."""
        return error_of(self.stopped) if self.stopped else None

    @property
    def speaks_for_all(self) -> bool:
        """Whether the others stop for the same reason: the servers, the answers or the clock, not this machine."""
        return isinstance(self.error, RunStopped) and self.error.everywhere


def report_of(data: Mapping[str, Any]) -> Report:
    """From its JSON; what another version tells besides is left out."""
    known = {each.name for each in fields(Report)}
    return Report(**{name: value for name, value in data.items() if name in known})


def all_stopped(reports: Sequence[Report]) -> bool:
    """Whether nobody else would get further: one speaks for all, or all that came to anything met such servers.

    A server that one machine alone cannot reach, or that refuses it, stops that machine.
    """
    heard = [report for report in reports if report.beat]
    if any(report.speaks_for_all for report in heard):
        return True
    return bool(heard) and all(isinstance(report.error, RunStopped | GateRefused) for report in heard)


class Silence:
    """Whether a partition is dead: its report has stood still for too long. The clock is passed in."""

    def __init__(self, now_s: float) -> None:
        self._beat: int | None = None
        self._heard_s = now_s

    def heard(self, beat: int | None, now_s: float) -> None:
        """A look at its report; None: there is none yet."""
        if beat is not None and beat != self._beat:
            self._beat, self._heard_s = beat, now_s

    def blind(self, now_s: float) -> None:
        """Nothing could be seen: what cannot be looked at is not silent."""
        self._heard_s = max(self._heard_s, now_s - SILENT_S / 2)

    def lasts(self, now_s: float) -> bool:
        return now_s - self._heard_s >= SILENT_S


def settled_chunks(reports: Sequence[Report]) -> dict[str, dict[str, Any]]:
    """Receipts by the hash of the chunk's rows; of two the later."""
    found: dict[str, dict[str, Any]] = {}
    for report in reports:
        found |= report.chunks
    return found


def is_settled(receipts: Mapping[str, Any]) -> bool:
    """Whether every row of the chunk had its turn: a pending one was never asked to the end."""
    return receipts["generated"] is not None and not receipts["generated"]["pending"]


def failed_rows(reports: Sequence[Report]) -> dict[str, str]:
    """The words of the rows that failed, by row_key; of two the later."""
    found: dict[str, str] = {}
    for report in reports:
        found |= report.failed
    return found


def error_json(error: BaseException) -> dict[str, Any]:
    """An error as a report holds it; a foreign one as a fault of draftmill."""
    if not isinstance(error, DraftmillError):
        error = DraftmillError(
            "a partition met an error it does not know",
            value=f"{type(error).__name__}: {error}",
            expected="rows, or an error of draftmill",
            remedy="this is a fault of draftmill: please report it with the partition's log; finished rows are kept",
        )
    parts = {name: getattr(error, name) for name in ("what", "expected", "remedy", "cause")}
    everywhere = isinstance(error, RunStopped) and error.everywhere
    return {"kind": type(error).__name__, "value": str(error.value), "everywhere": everywhere, **parts}


def error_of(data: Mapping[str, Any]) -> DraftmillError:
    """The error again; its class by its name."""
    found = {kind.__name__: kind for kind in kinds()}.get(data["kind"], DraftmillError)
    error = found(**{name: data[name] for name in ("what", "value", "expected", "remedy", "cause")})
    if isinstance(error, RunStopped):
        error.everywhere = data["everywhere"]
    return error


def unseen() -> DatasetError:
    """Why a partition asks no more whose reports do not get through: it is taken for dead, and others ask its rows."""
    return DatasetError(
        "this partition can no longer be seen by its fan-out",
        value=f"no report got into the dataset for {LEASE_S:.0f} s",
        expected=f"one every {BEAT_S:.0f} s",
        remedy="see why this machine could not write to the dataset; finished rows are kept, and the fan-out deals the "
        "others once more",
    )


def partitions_lost(names: Mapping[str, str], *, rows: int) -> RunStopped:
    """Why rows are pending. `names`: what became of each partition that died, by its name."""
    return RunStopped(
        f"{rows} rows were not asked: partitions ended before their rows were",
        value="; ".join(f"{name}: {state}" for name, state in names.items()),
        expected=f"a worker for each of them, to the end (dealt {ROUNDS} times)",
        remedy="see those runs' logs and the machines' workers, then run again: finished rows are kept and only the "
        "others are asked",
    )
