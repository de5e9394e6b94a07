"""Stated ranges are right as often as they say: 200 simulated pilots of 5 %, lengths with a heavy tail.

What is simulated, and the other populations: benchmarks/pilot_coverage.py.
"""

from __future__ import annotations

import pytest

from benchmarks.pilot_coverage import CASES, coverage, pilots

PILOTS = 200

DRAWS = 50
"""Enough for the 5th and the 95th of 100."""


@pytest.mark.parametrize("case", CASES[:1], ids=lambda case: case.name)
def test_nine_of_ten_ranges_are_right_and_narrow(case) -> None:
    found = list(pilots(case, PILOTS, draws=DRAWS))
    tokens = coverage([(each.tokens, each.true_tokens) for each in found])
    duration = coverage([(each.seconds, each.true_seconds) for each in found])
    for seen in (tokens, duration):
        assert 0.85 <= seen.right <= 0.95, seen
        assert seen.half_width <= 0.15, seen
        assert abs(seen.error) <= 0.03, seen
