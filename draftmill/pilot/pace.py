"""How fast the servers are, from when each answer left and came; and how long all rows would take.

The model. At b requests in flight every one gets its next id after tau(b) = base_s +
load_s * b seconds: reading the weights takes its time however few there are, and each request adds
some. A request costs `extra` ids beside those it brings (its prompt, its way). With a clock
that advances by dt / tau(b), a request takes exactly its ids, whatever else is in flight: so

    duration = base_s * (ids until the last one ends, on `places` places) + load_s * (ids of all)

and what is on the clock is plain list scheduling: each place takes the next row the moment it
is free. The long tail, where few requests are left and the server is all but idle,
is in it as it comes. A server that queues (`places` of its own fewer than are sent) is
seen as what it runs: requests begin when one before them has ended.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RATIOS = np.concatenate([[0.0], np.logspace(-4, 1, 51)])
"""Values tried for load_s / base_s: from a server that does not feel its load to one that does one thing at a time."""

LAST = 50_000
"""Jobs whose places are followed one by one."""

FIT_AT_LEAST = 8
"""Answers below which only a mean pace can be told."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds an id: `base_s` and, for each request in flight, `load_s`; `extra`: ids that a request costs beside its
    own; `spread`: of the seconds of single requests around the model, as a share; `answers`: how many it is made of."""

    base_s: float
    load_s: float
    extra: float
    spread: float
    answers: int

    def tokens_per_s(self, places: float) -> float:
        """Of all requests together, with so many in flight."""
        return places / (self.base_s + self.load_s * places)

    def duration_s(self, tokens_n: npt.NDArray[np.float64], places: int) -> float:
        """Seconds until all rows of these lengths, asked in this order, are answered."""
        whole = tokens_n + self.extra
        return self.base_s * span(whole, places) + self.load_s * float(whole.sum())


def span(work_n: npt.NDArray[np.float64], places: int) -> float:
    """When the last of these jobs ends, if each place takes the next one the moment it is free; the jobs' own unit.

    Of very many, those before the last LAST keep all places busy: they take their sum.
    """
    if len(work_n) > max(LAST, 16 * places):
        before = len(work_n) - max(LAST, 16 * places)
        return float(work_n[:before].sum()) / places + span(work_n[before:], places)
    if len(work_n) <= places:
        return float(work_n.max(initial=0.0))
    jobs = work_n.tolist()
    ends = jobs[:places]
    heapq.heapify(ends)
    for job in jobs[places:]:
        heapq.heapreplace(ends, ends[0] + job)
    return float(max(ends))


def fit(
    sent_s: npt.NDArray[np.float64], came_s: npt.NDArray[np.float64], tokens: npt.NDArray[np.float64], places: int
) -> Pace | None:
    """The pace that explains these answers best; None without any. `places`: requests that run at once at most."""
    if len(tokens) == 0:
        return None
    order = np.argsort(sent_s, kind="stable")
    came, ids = came_s[order], tokens[order]
    begun = begun_s(sent_s[order], came, places)
    seconds = np.maximum(came - begun, 1e-9)
    if len(ids) < FIT_AT_LEAST or float(ids.sum()) == 0:
        return Pace(float(seconds.sum()) / max(1.0, float(ids.sum())), 0.0, 0.0, 1.0, len(ids))
    times, load = _load(begun, came)
    found = [_at_ratio(float(ratio), times, load, begun, came, ids) for ratio in RATIOS]
    return min(found, key=lambda pace: pace.spread)


def begun_s(sent_s: npt.NDArray[np.float64], came_s: npt.NDArray[np.float64], places: int) -> npt.NDArray[np.float64]:
    """When each request got a place, of `places` that are given in the order of sending (which the arguments have)."""
    free: list[float] = []
    begun = np.empty(len(sent_s))
    for number, (sent, came) in enumerate(zip(sent_s.tolist(), came_s.tolist(), strict=True)):
        if len(free) < places:
            begun[number] = sent
            heapq.heappush(free, came)
        else:
            # One that came back sooner than a place was free had one that we do not know of.
            begun[number] = min(max(sent, free[0]), came)
            heapq.heapreplace(free, max(came, free[0]))
    return begun


def _load(begun: npt.NDArray[np.float64], came: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """Moments at which the load changes, and the load from each on."""
    moments = np.concatenate([begun, came])
    steps = np.concatenate([np.ones(len(begun)), -np.ones(len(came))])
    order = np.lexsort((steps, moments))
    return moments[order], np.maximum(np.cumsum(steps[order]), 1.0)


def _at_ratio(
    ratio: float,
    times: npt.NDArray[np.float64],
    load: npt.NDArray[np.float64],
    begun: npt.NDArray[np.float64],
    came: npt.NDArray[np.float64],
    ids: npt.NDArray[np.float64],
) -> Pace:
    """The best pace whose load_s is `ratio` times its base_s."""
    clock = np.concatenate([[0.0], np.cumsum(np.diff(times) / (1.0 + ratio * load[:-1]))])
    passed = np.interp(came, times, clock) - np.interp(begun, times, clock)
    # passed = base_s * (ids + extra), each with an error in proportion to itself.
    weight = 1.0 / np.maximum(passed, 1e-9)
    columns = np.column_stack([ids, np.ones(len(ids))]) * weight[:, None]
    (base, constant), *_ = np.linalg.lstsq(columns, passed * weight, rcond=None)
    if constant < 0 or base <= 0:
        base, constant = float((ids * weight).sum() / ((ids * weight) ** 2).sum()), 0.0
    error = (base * ids + constant) * weight - 1.0
    # What the whole takes is to be right: its mean over all ids, not over requests.
    scale = float(passed.sum() / (base * ids.sum() + constant * len(ids)))
    return Pace(
        base_s=float(base) * scale,
        load_s=ratio * float(base) * scale,
        extra=float(constant / base),
        spread=float(np.sqrt(np.mean(error**2))),
        answers=len(ids),
    )
