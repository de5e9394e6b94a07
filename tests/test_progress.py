"""Who is told what a command does, and how far it is."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill import progress
from draftmill.progress import LogListener, Rows, listener, listening


@given(done=st.integers(0, 100), more=st.integers(0, 100), tokens=st.integers(0, 10**9), elapsed=st.floats(0, 1e6))
def test_rates_and_time_left_are_never_a_fault(done: int, more: int, tokens: int, elapsed: float) -> None:
    rows = Rows(done, done + more, tokens, elapsed)
    assert rows.tokens_per_s >= 0
    assert (rows.left_s is None) == (done == 0)
    assert rows.left_s is None or rows.left_s >= 0


def test_the_pace_so_far_tells_the_time_left() -> None:
    rows = Rows(done=25, total=100, tokens=5000, elapsed_s=10.0)
    assert (rows.tokens_per_s, rows.left_s) == (500.0, 30.0)


def test_a_listener_hears_its_block_only() -> None:
    outside, inside = listener(), LogListener()
    with listening(inside):
        assert listener() is inside
    assert listener() is outside


def test_the_log_has_few_lines_of_many_rows_and_always_the_last(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s[0])
    caplog.set_level(logging.INFO)
    heard = LogListener()
    for done in range(1, 101):
        now_s[0] += 1.0
        heard.rows(Rows(done, 100, done * 10, float(done)))
    lines = [record.message for record in caplog.records]
    assert len(lines) == 5  # at once, every 30 s, and the end
    assert lines[-1].startswith("100 of 100 rows, 10 tokens/s")
