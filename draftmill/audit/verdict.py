"""One row's audit: what its positions come to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from draftmill.audit.positions import (
    NEAR_TIE_NATS,
    Outcome,
    behind_first,
    is_greedy,
    is_penalized,
    outcomes,
)
from draftmill.audit.surprise import surprise
from draftmill.recipe import Sampling
from draftmill.records import Scores

DECIDED_SHARE = 0.5
"""Of a row's positions that must have been decided before the row is called the model's own."""

PLACES_KEPT = 50
"""Positions of a row that are named; their number is always the whole one."""


class Verdict(StrEnum):
    """What a row is."""

    OWN = "own"  # nothing speaks against it
    SUSPICIOUS = "suspicious"
    UNDECIDED = "undecided"  # too little could be decided


class Doubt(StrEnum):
    """Why a row is suspicious."""

    NOT_FIRST = "not_first_choice"  # greedy, and another id was clearly likelier
    OUTSIDE = "outside_nucleus"  # could not have been sampled under the recipe's top_p, top_k and min_p
    SURPRISE = "too_surprising"  # more unlikely ids in a stretch than chance allows


@dataclass(frozen=True, slots=True)
class RowAudit:
    """`places`: indexes in input_ids of what is wrong, the first ones; `wrong`: how many. `behind`: at each place the
    nats by which its id is less likely than the first choice. `not_first`, `near_ties`: of a greedy row, the positions
    that are not the first choice, and those of them within the tolerance. `worst`: the least likely id's
    log-probability, at `worst_at`. `unscored`: generated ids that the server's context had no room for."""

    row_key: str
    prompt_id: str
    variant: str
    verdict: Verdict
    doubt: Doubt | None
    places: tuple[int, ...]
    behind: tuple[float, ...]
    positions: int
    wrong: int
    undecided: int
    not_first: int
    near_ties: int
    worst: float
    worst_at: int
    mean: float
    unscored: int
    why_undecided: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "places": list(self.places),
            "behind": [round(nats, 4) for nats in self.behind],
        }


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What of a row is audited. `positions_S`: indexes in input_ids of the generated ids that were scored."""

    row_key: str
    prompt_id: str
    variant: str
    positions_S: Sequence[int]
    unscored: int = 0


def audited(
    asked: Asked,
    scores: Scores,
    sampling: Sampling,
    *,
    vocabulary: int | None = None,
    tolerance: float = NEAR_TIE_NATS,
) -> RowAudit:
    """The audit of a row whose generated ids, S > 0, have these scores."""
    found_S = outcomes(scores, sampling, vocabulary=vocabulary, tolerance=tolerance)
    wrong = np.flatnonzero(found_S == Outcome.OUTSIDE)
    doubt = (Doubt.NOT_FIRST if is_greedy(sampling) else Doubt.OUTSIDE) if len(wrong) else None
    if doubt is None and not is_greedy(sampling) and not is_penalized(sampling):
        stretch = surprise(scores, sampling, vocabulary=vocabulary, tolerance=tolerance)
        if stretch.is_beyond_chance:
            doubt, wrong = Doubt.SURPRISE, _least_likely(scores, stretch.start, stretch.end)
    behind_S = behind_first(scores)
    undecided = int((found_S == Outcome.UNDECIDED).sum())
    worst = int(np.argmin(scores.chosen_S))
    not_first = int((behind_S > 0).sum())
    verdict, why = _verdict(doubt, undecided / len(found_S), sampling)
    return RowAudit(
        row_key=asked.row_key,
        prompt_id=asked.prompt_id,
        variant=asked.variant,
        verdict=verdict,
        doubt=doubt,
        places=tuple(int(asked.positions_S[place]) for place in wrong[:PLACES_KEPT]),
        behind=tuple(_finite(behind_S[place]) for place in wrong[:PLACES_KEPT]),
        positions=len(found_S),
        wrong=len(wrong),
        undecided=undecided,
        not_first=not_first,
        near_ties=int(((behind_S > 0) & (behind_S <= tolerance)).sum()),
        worst=_finite(scores.chosen_S[worst]),
        worst_at=int(asked.positions_S[worst]),
        mean=_finite(scores.chosen_S.mean()),
        unscored=asked.unscored,
        why_undecided=why,
    )


def _verdict(doubt: Doubt | None, undecided_share: float, sampling: Sampling) -> tuple[Verdict, str]:
    if doubt is not None:
        return Verdict.SUSPICIOUS, ""
    if is_penalized(sampling):
        return Verdict.UNDECIDED, "penalties change every choice by the ids before it: log-probabilities do not tell"
    if undecided_share > 1 - DECIDED_SHARE:
        return Verdict.UNDECIDED, "most of its ids are beyond the likeliest that the server returns"
    return Verdict.OWN, ""


def _least_likely(scores: Scores, start: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The positions of a stretch that make it surprising: from the least likely on, half of its improbability."""
    nats = np.minimum(-scores.chosen_S[start:end], 1e6)
    order = np.argsort(-nats, kind="stable")
    enough = int(np.searchsorted(np.cumsum(nats[order]), nats.sum() / 2)) + 1
    return np.sort(order[:enough]) + start


def _finite(nats: float) -> float:
    """As JSON can say it."""
    return float(np.clip(nats, -9999.0, 9999.0))
