"""Wilson's range: known values, and what it says of none and of all."""

from __future__ import annotations

import pytest

from draftmill.pilot.shares import wilson


def test_known_values() -> None:
    seen = wilson("good", 180, 200)
    assert (seen.share, seen.low, seen.high) == pytest.approx((0.9, 0.8597, 0.9297), abs=1e-3)


def test_none_and_all_still_have_a_range() -> None:
    none, every = wilson("x", 0, 200), wilson("x", 200, 200)
    assert none.low == 0.0
    assert 0.01 < none.high < 0.02
    assert every.high == 1.0
    assert every.low == pytest.approx(1 - none.high)
    assert wilson("x", 0, 0).to_json() == {"name": "x", "rows": 0, "share": 0.0, "low": 0.0, "high": 1.0}
