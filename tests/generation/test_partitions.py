"""Who gets which chunk, how hard each may drive the servers, who is dead."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from draftmill.errors import DatasetError, GateRefused, RunStopped
from draftmill.generation.partitions import (
    BEAT_S,
    LEASE_S,
    SILENT_S,
    Report,
    Silence,
    all_stopped,
    deal,
    error_json,
    failed_rows,
    in_flight_shares,
    is_settled,
    left,
    report_of,
    settled_chunks,
)


def chunk(number: int, num_rows: int, resumed: int = 0) -> dict[str, Any]:
    return {"number": number, "num_rows": num_rows, "resumed": resumed}


def receipts(*, generated: int = 0, pending: int = 0, failed: int = 0) -> dict[str, Any]:
    receipt = {"generated": generated, "resumed": 0, "failed": failed, "pending": pending, "failures": []}
    return {"opened": True, "cached": False, "generated": receipt, "validated": None, "uploaded": None}


chunks = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), max_size=40).map(
    lambda sizes: [chunk(n, rows, min(rows, resumed)) for n, (rows, resumed) in enumerate(sizes, 1)]
)


@given(chunks, st.integers(1, 30), st.integers(1, 20))
def test_every_chunk_with_rows_to_ask_is_dealt_once_in_order(chunks, partitions, in_flight) -> None:
    hands = deal(chunks, partitions, in_flight)
    dealt = sorted(each["number"] for hand in hands for each in hand)
    assert dealt == [each["number"] for each in chunks if left(each)]
    assert all(hand and [each["number"] for each in hand] == sorted(each["number"] for each in hand) for hand in hands)
    assert len(hands) <= min(partitions, in_flight)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 30))
def test_no_partition_has_more_than_one_chunk_more_rows_than_another(sizes, partitions) -> None:
    hands = deal([chunk(n, rows) for n, rows in enumerate(sizes)], partitions, 1000)
    rows = [sum(map(left, hand)) for hand in hands]
    assert max(rows) - min(rows) <= max(sizes)


@given(st.integers(1, 65536), st.data())
def test_the_shares_are_the_budget(in_flight, data) -> None:
    partitions = data.draw(st.integers(1, in_flight))
    shares = in_flight_shares(in_flight, partitions)
    assert (len(shares), sum(shares)) == (partitions, in_flight)
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1


def test_a_report_survives_its_json() -> None:
    error = RunStopped("the breaker", value="9 of 10", expected="less", remedy="look", cause="a wrong model")
    report = Report(3, True, 8, 1, 7, 70, {"abc": receipts(generated=7)}, {"k": "no"}, error_json(error))
    again = report_of(report.to_json())
    assert again == report
    assert (type(again.error), str(again.error)) == (RunStopped, str(error))
    assert again.error.cause == "a wrong model"


def test_servers_and_the_clock_stop_all_a_full_disk_stops_one_machine() -> None:
    def stopped(error: Exception) -> Report:
        return Report(ended=True, stopped=error_json(error))

    parts = {"value": "", "expected": "", "remedy": ""}
    assert stopped(RunStopped("night", everywhere=True, **parts)).speaks_for_all
    assert not stopped(RunStopped("no server can be used any more", **parts)).speaks_for_all
    assert not stopped(GateRefused("not there", **parts)).speaks_for_all
    assert not stopped(DatasetError("full", **parts)).speaks_for_all
    assert not stopped(ValueError("odd")).speaks_for_all
    assert not Report(ended=True).speaks_for_all


def test_of_two_reports_of_a_chunk_the_later_counts() -> None:
    first = Report(chunks={"a": receipts(generated=1, pending=3), "b": receipts(failed=1)})
    second = Report(chunks={"a": receipts(generated=4)})
    settled = settled_chunks([first, second])
    assert settled["a"]["generated"]["generated"] == 4
    assert not is_settled(first.chunks["a"])
    assert is_settled(settled["a"])
    assert is_settled(settled["b"]), "its row had its tries"


def test_failed_rows_are_all_that_reports_name_and_of_two_the_later() -> None:
    many = {str(number): "HTTP 500" for number in range(100)}
    assert failed_rows([Report(failed=many), Report(failed={"7": "HTTP 502"})]) == {**many, "7": "HTTP 502"}


def test_what_another_version_tells_besides_is_left_out() -> None:
    assert report_of({**Report(beat=3).to_json(), "mood": "good"}) == Report(beat=3)


def test_a_server_that_one_machine_cannot_reach_stops_that_one_only() -> None:
    parts = {"value": "", "expected": "", "remedy": ""}
    away = Report(beat=1, ended=True, stopped=error_json(RunStopped("no server can be used any more", **parts)))
    refused = Report(beat=1, ended=True, stopped=error_json(GateRefused("not there", **parts)))
    night = Report(beat=1, ended=True, stopped=error_json(RunStopped("over", everywhere=True, **parts)))
    full = Report(beat=1, ended=True, stopped=error_json(DatasetError("full", **parts)))
    done, unheard = Report(beat=1, ended=True), Report()
    assert not all_stopped([done, away])
    assert not all_stopped([full, refused])
    assert all_stopped([refused, away, unheard])
    assert all_stopped([done, night])
    assert not all_stopped([unheard])


def test_a_partition_asks_no_more_before_it_is_taken_for_dead() -> None:
    assert BEAT_S * 3 <= LEASE_S <= SILENT_S - BEAT_S


def test_a_report_that_stands_still_is_a_dead_partition() -> None:
    silence = Silence(0.0)
    silence.heard(1, 10.0)
    silence.heard(1, 10.0 + SILENT_S - 1)
    assert not silence.lasts(10.0 + SILENT_S - 1)
    assert silence.lasts(10.0 + SILENT_S)
    silence.heard(2, 10.0 + SILENT_S)
    assert not silence.lasts(10.0 + SILENT_S)


def test_what_cannot_be_looked_at_is_not_silent() -> None:
    silence = Silence(0.0)
    for now_s in range(0, 3000, 10):
        silence.blind(float(now_s))
        assert not silence.lasts(float(now_s))
    assert silence.lasts(2990.0 + SILENT_S)


def test_a_partition_that_never_reports_is_silent() -> None:
    silence = Silence(5.0)
    silence.heard(None, 100.0)
    assert silence.lasts(5.0 + SILENT_S)
