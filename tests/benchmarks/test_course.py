"""A watched process: processor time between two looks is shared out evenly."""

from __future__ import annotations

import pytest

from benchmarks.process import Course, Sample

COURSE = Course(0, 4, 3.0, 0, [Sample(0, {"client": 0.0}), Sample(2, {"client": 1.0}), Sample(4, {"client": 3.0})])


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, 4, 3.0), (1, 3, 1.5), (0, 1, 0.5), (3, 9, 1.0), (-1, 2, 1.0)]
)
def test_cpu_between_two_times(start, end, expected):
    assert COURSE.cpu_between("client", start, end) == pytest.approx(expected)
