"""The fate of each row against the same rules written row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmill.dataset.merge import NEEDED, Fate, merge
from draftmill.dataset.plan import SUCCESSION
from draftmill.dataset.stored import STORED, requests_table

KEYS = st.sampled_from("abcd")
ATTEMPTS = st.integers(0, 2)
REQUEST = st.tuples(KEYS, ATTEMPTS)
ROWS = st.lists(
    st.builds(
        lambda key, attempt, reason: {
            "row_key": key,
            "attempt": attempt,
            "good": reason is None,
            "reason": reason,
            "object": "o",
        },
        KEYS,
        ATTEMPTS,
        st.sampled_from([None, "degenerate"]),
    ),
    max_size=7,
    unique_by=lambda row: (row["row_key"], row["attempt"]),
)

Row = dict[str, Any]


def request(row: Row) -> tuple[str, int]:
    return row["row_key"], row["attempt"]


def reference(sealed: list[Row], new: list[Row], dropped: set[Any], succession: dict[Any, str]) -> list[Fate]:
    rows = [(row, False) for row in sealed] + [(row, True) for row in new]
    there_before = {request(row) for row in sealed}
    fates = [Fate.STAYS] * len(rows)
    for place, (row, is_new) in enumerate(rows):
        if request(row) in dropped and not is_new:
            fates[place] = Fate.DROPPED
        elif request(row) in dropped and request(row) not in there_before:
            fates[place] = Fate.GONE

    def staying() -> list[int]:
        return [place for place, fate in enumerate(fates) if fate is Fate.STAYS]

    seen = set()
    for place in staying():
        if request(rows[place][0]) in seen:
            fates[place] = Fate.SEALED_BEFORE
        seen.add(request(rows[place][0]))
    there = [rows[place][0] for place in staying()]
    for place in staying():
        row = rows[place][0]
        mine = [other for other in there if other["row_key"] == row["row_key"]]
        above = [other for other in mine if other["good"]] if row["good"] else mine
        if any(other["attempt"] > row["attempt"] for other in above):
            fates[place] = Fate.REPLACED
    named = [place for place in staying() if not rows[place][1] and request(rows[place][0]) in succession]
    heirs = [rows[place][0] for place in staying() if place not in named]
    for place in named:
        row = rows[place][0]
        follow = [other for other in heirs if other["row_key"] == succession[request(row)]]
        if any(other["good"] or not row["good"] for other in follow):
            fates[place] = Fate.SUPERSEDED
    return fates


@settings(max_examples=100, deadline=None)
@given(ROWS, ROWS, st.sets(REQUEST, max_size=4), st.dictionaries(REQUEST, KEYS, max_size=4))
def test_each_row_has_the_plain_rules_fate(
    sealed: list[Row], new: list[Row], dropped: set[Any], succession: dict[Any, str]
) -> None:
    schema = pa.schema([STORED.field(name) for name in NEEDED])
    left = [{"row_key": key, "attempt": n, "successor": heir} for (key, n), heir in succession.items()]
    merged = merge(
        pa.Table.from_pylist(sealed, schema),
        pa.Table.from_pylist(new, schema),
        dropped=requests_table(dropped),
        succession=pa.Table.from_pylist(left, SUCCESSION),
    )
    assert merged.rows["fate"].tolist() == reference(sealed, new, dropped, succession)
    assert merged.rows["new"].tolist() == [False] * len(sealed) + [True] * len(new)
    lost = {request(row) for row in sealed} & dropped
    assert merged.moved == sum(request(row) in lost for row in new)
