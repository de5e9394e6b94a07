"""Shares with the range they are in (Wilson 1927): honest for few rows, and for a reason that no row had."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Z = 1.6448536269514722
"""Standard deviations of a range of 90 %."""


@dataclass(frozen=True, slots=True)
class Share:
    """`rows` of `of`; between `low` and `high` with 90 % probability, unless asked otherwise."""

    name: str
    rows: int
    of: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.rows / self.of if self.of else 0.0

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "rows": self.rows, "share": self.share, "low": self.low, "high": self.high}


def wilson(name: str, rows: int, of: int, *, z: float = Z) -> Share:
    """The share and its range of `z` standard deviations; 0 to 1 for none."""
    if not of:
        return Share(name, rows, of, 0.0, 1.0)
    share, z2 = rows / of, z * z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = z / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    # At the ends the formula is exact up to a rounding.
    return Share(
        name, rows, of, max(0.0, middle - half) if rows else 0.0, min(1.0, middle + half) if rows < of else 1.0
    )
