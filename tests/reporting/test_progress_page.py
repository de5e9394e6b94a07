"""The progress page: a plain first line, then the servers; whatever a server says stays text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftmill.progress import Rows, ServerStanding
from draftmill.reporting.progress_page import cell, percent, progress_page, rows_line

OK = ServerStanding("http://a:30000", "ok", in_flight=31, limit=32, answers=120, tokens=9000)
OUT = ServerStanding("http://b:30000", "out for 20 s: no connection", in_flight=0, limit=16, answers=7, tokens=400)


def test_the_page_in_full() -> None:
    page = progress_page(
        "generating 240 rows",
        rows=Rows(120, 240, 12_000, 60.0),
        wait="no server takes rows",
        servers=[OK, OUT],
        tokens_per_s={OK.url: 1234.4},
        as_of="23:41:07 UTC",
    )
    assert page.splitlines() == [
        "generating 240 rows: 120 of 240 rows, 200 tokens/s, about 0:01:00 left",
        "",
        "Waiting: no server takes rows",
        "",
        "| server | state | in flight | limit | rows answered | tokens/s |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        "| http://a:30000 | ok | 31 | 32 | 120 | 1,234 |",
        "| http://b:30000 | out for 20 s: no connection | 0 | 16 | 7 | 0 |",
        "",
        "As of 23:41:07 UTC.",
    ]


def test_at_the_end_no_time_is_left() -> None:
    assert rows_line(Rows(4, 4, 40, 2.0)) == "4 of 4 rows, 20 tokens/s"


@given(done=st.integers(0, 300), total=st.integers(0, 200))
def test_the_share_is_one(done: int, total: int) -> None:
    assert 0.0 <= percent(Rows(done, total, 0, 1.0)) <= 100.0
    assert percent(None) == 0.0


@given(st.text())
def test_whatever_is_said_is_one_cell_of_text(text: str) -> None:
    said = cell(text)
    assert len(said.splitlines()) <= 1
    bare = said.replace("\\\\", "").replace("\\|", "").replace("\\<", "").replace("\\[", "")
    assert not set("|<[") & set(bare)
