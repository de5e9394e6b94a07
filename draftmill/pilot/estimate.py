"""From what came of a pilot's rows to what the whole takes. Pure; chance is seeded.

`whole` is every row that was missing when the pilot began, its own included; `left`
what the run behind it still has to ask. A range is where a number is with 90 %
probability, given that the sample was drawn by lot: it knows nothing of servers that
are slower tomorrow. How often it is right is measured: benchmarks/pilot_coverage.py.

Rows of the pilot that failed are counted as left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from draftmill.dataset.statistics import Numbers
from draftmill.generation.flights import Flights
from draftmill.pilot.advice import Advice
from draftmill.pilot.draws import DRAWS, Range, Sample, rest_of
from draftmill.pilot.hidden import Hidden
from draftmill.pilot.measured import Measured
from draftmill.pilot.pace import Pace, fit
from draftmill.pilot.servers import Servers
from draftmill.pilot.shares import Share, wilson
from draftmill.pilot.split import Frame

SEED = 0
"""Of the draws: the same pilot is told in the same numbers."""

UNITS_AT_LEAST = 2
"""Units that must have come back: one says nothing of how they spread."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What some rows take. `tokens` are generated ids, `ids` those with their prompts; `duration_s`, `gpu_hours`: None
    where nothing was timed; `hidden_bytes`: None where the model's width is not known. `gpu_hours` are hours of
    servers where nobody said how many GPUs those have."""

    rows: int
    tokens: Range
    ids: Range
    duration_s: Range | None
    gpu_hours: Range | None
    storage_bytes: Range
    hidden_bytes: Range | None

    def to_json(self) -> dict[str, Any]:
        ranges = {
            name: getattr(self, name)
            for name in ("tokens", "ids", "duration_s", "gpu_hours", "storage_bytes", "hidden_bytes")
        }
        return {"rows": self.rows} | {name: found and found.to_json() for name, found in ranges.items()}


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a pilot tells. `gpus`: 0 where not known; `filled`: whether it was long enough to see the servers full."""

    asked: int
    answered: int
    missing: int
    lengths: Mapping[str, Numbers]
    verdicts: list[Share]
    rows_per_s: float | None
    tokens_per_s: float | None
    pace: Pace | None
    places: int
    filled: bool
    gpus: float
    whole: Amounts
    left: Amounts
    advice: list[Advice]
    hidden: Hidden | None

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": {"asked": self.asked, "answered": self.answered, "missing": self.missing},
            "lengths": {
                name or "all": {part: lengths.model_dump() for part, lengths in numbers.lengths.items()}
                for name, numbers in self.lengths.items()
            },
            "verdicts": [share.to_json() for share in self.verdicts],
            "rows_per_s": self.rows_per_s,
            "tokens_per_s": self.tokens_per_s,
            "in_flight": {"places": self.places, "filled": self.filled},
            "gpus": self.gpus or None,
            "whole": self.whole.to_json(),
            "left": self.left.to_json(),
            "advice": [each.to_json() for each in self.advice],
            "hidden": self.hidden
            and {"width": self.hidden.width, "layers": self.hidden.layers, "told_by": self.hidden.told_by},
        }


@dataclass(frozen=True, slots=True)
class Timed:
    """The answers that were timed, in monotonic seconds and ids."""

    sent_s: npt.NDArray[np.float64]
    came_s: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.float64]

    @staticmethod
    def of(flights: Flights) -> Timed:
        return Timed(np.array(flights.sent_s), np.array(flights.came_s), np.array(flights.tokens, np.float64))

    @property
    def span_s(self) -> float:
        return float(self.came_s.max() - self.sent_s.min()) if len(self.tokens) else 0.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Of each draw, for all rows and for those left: tokens, ids, and seconds (empty where nothing was timed)."""

    tokens: npt.NDArray[np.float64]
    ids: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]


def draw(
    sample: Sample, pace: Pace | None, places: int, *, prompt_ids: float | None, draws: int = DRAWS
) -> tuple[Drawn, Drawn]:
    """What the whole and what the rest come to, draw by draw. `prompt_ids`: of all prompts, where they are known."""
    dice = np.random.default_rng(SEED)
    whole, left = np.zeros((draws, 3)), np.zeros((draws, 3))
    known_tokens, known_prompt = float(sample.tokens_n.sum()), float(sample.prompt_n.sum())
    for number in range(draws):
        rest, prompts = rest_of(sample, dice)
        rest_prompt = float(prompts.sum()) if prompt_ids is None else prompt_ids - known_prompt
        everything = dice.permutation(np.concatenate([sample.tokens_n, rest]))
        tokens = float(rest.sum())
        # How well the pace itself is known: a mean over the answers that it is made of.
        error = float(np.exp(dice.normal(0.0, pace.spread / np.sqrt(pace.answers)))) if pace else 0.0
        seconds = pace.duration_s(everything, places) * error if pace else 0.0
        rest_seconds = pace.duration_s(dice.permutation(rest), places) * error if pace and len(rest) else 0.0
        left[number] = tokens, tokens + rest_prompt, rest_seconds
        whole[number] = tokens + known_tokens, tokens + known_tokens + rest_prompt + known_prompt, seconds
    return Drawn(*whole.T), Drawn(*left.T)


def estimate(
    found: Measured,
    frame: Frame,
    *,
    timed: Timed,
    servers: Servers,
    budget: int,
    failed: int,
    advice: list[Advice],
    pace: Pace | None,
    gpus: float | None,
    hidden: Hidden | None,
) -> Estimate | None:
    """The estimate; None where too few rows came back. `budget`: the recipe's largest, in ids; `gpus`: as told by the
    user."""
    if len(found.unit_n) < UNITS_AT_LEAST:
        return None
    sample = Sample(frame.stratum_n[found.unit_n], found.tokens_n, found.prompt_n, frame.sizes_H, float(budget))
    whole, left = draw(sample, pace, servers.places, prompt_ids=frame.prompt_ids)
    number = gpus or servers.gpus or 0

    def amounts(drawn: Drawn, rows: int) -> Amounts:
        ids = Range.of(drawn.ids)
        seconds = Range.of(drawn.seconds) if pace else None
        good = found.good_ids / found.ids if found.ids else 0.0
        return Amounts(
            rows=rows,
            tokens=Range.of(drawn.tokens),
            ids=ids,
            duration_s=seconds,
            gpu_hours=seconds and seconds.times((number or servers.number) / 3600),
            storage_bytes=ids.times(found.bytes / max(1, found.ids)),
            hidden_bytes=ids.times(good * hidden.bytes_an_id) if hidden else None,
        )

    seconds = timed.span_s
    return Estimate(
        asked=frame.rows,
        answered=found.rows,
        missing=frame.num_rows,
        lengths=found.lengths,
        verdicts=_verdicts(found, failed),
        rows_per_s=len(timed.tokens) / seconds if seconds else None,
        tokens_per_s=float(timed.tokens.sum()) / seconds if seconds else None,
        pace=pace,
        places=servers.places,
        filled=len(timed.tokens) >= 2 * servers.places,
        gpus=number,
        whole=amounts(whole, frame.num_rows),
        left=amounts(left, frame.num_rows - found.rows),
        advice=advice,
        hidden=hidden,
    )


def pace_of(timed: Timed, servers: Servers) -> Pace | None:
    """How fast the servers were."""
    return fit(timed.sent_s, timed.came_s, timed.tokens, servers.places)


def _verdicts(found: Measured, failed: int) -> list[Share]:
    """Good first, then the reasons, the commonest first."""
    of = found.rows + failed
    counts = found.reasons | ({"request_failed": failed} if failed else {})
    bad = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [wilson("good", found.good, of), *(wilson(name, number, of) for name, number in bad)]
