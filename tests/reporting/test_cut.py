"""A row's parts: by hand, and beside a plain reading of the definition, id by id."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftmill.records import Thinking
from draftmill.reporting.cut import part_runs, parts
from draftmill.reporting.row_parts import Part
from tests.reporting.report_dataset import CLOSE, END, OPEN, STRUCTURE

P, M, R, C, E = Part.PROMPT, Part.MARKER, Part.REASONING, Part.CONTENT, Part.END


def span(start: int, end: int, close: int | None, stop: int | None = END) -> dict[str, int | None]:
    return {"start": start, "end": end, "reasoning_end": close, "stop_id": stop}


def test_one_answer() -> None:
    ids = [9, OPEN, 50, CLOSE, 60, 61, END]
    assert parts(ids, [span(2, 7, 3)], STRUCTURE) == [P, P, R, M, C, C, E]
    assert part_runs(ids, [span(2, 7, 3)], STRUCTURE) == [(2, P), (3, R), (4, M), (6, C), (7, E)]


def test_no_ids_have_no_parts() -> None:
    assert (parts([], [], STRUCTURE), part_runs([], [], STRUCTURE)) == ([], [])


def test_a_marker_of_several_ids_is_one_only_as_a_whole() -> None:
    structure = replace(STRUCTURE, close_ids=(7, 8))
    assert parts([9, 7, 50, 7, 8, 7, 60], [span(1, 7, 4, None)], structure) == [P, R, R, M, M, C, C]


def plainly(ids: list[int], start: int, close: int | None, stop: int | None, thinking: Thinking) -> list[Part]:
    found = [P] * start
    for position in range(start, len(ids)):
        if position == len(ids) - 1 and stop is not None:
            found.append(E)
        elif ids[position] in (OPEN, CLOSE):
            found.append(M)
        elif thinking is Thinking.OPENED_BY_PROMPT and (close is None or position < close):
            found.append(R)
        else:
            found.append(C)
    return found


@given(
    st.lists(st.sampled_from([OPEN, CLOSE, END, 50, 51]), min_size=1, max_size=20),
    st.integers(0, 20),
    st.none() | st.integers(0, 19),
    st.sampled_from([None, END]),
    st.sampled_from([Thinking.OPENED_BY_PROMPT, Thinking.NONE]),
)
def test_each_id_by_the_definition(
    ids: list[int], start: int, close: int | None, stop: int | None, thinking: Thinking
) -> None:
    start = min(start, len(ids))
    close = None if close is None else min(max(close, start), len(ids))
    structure = replace(STRUCTURE, thinking=thinking)
    wanted = plainly(ids, start, close, stop, thinking)
    spans = [span(start, len(ids), close, stop)]
    assert parts(ids, spans, structure) == wanted
    runs = part_runs(ids, spans, structure)
    ends = [0, *(end for end, _ in runs)]
    expanded = [part for low, (end, part) in zip(ends, runs, strict=False) for _ in range(end - low)]
    assert expanded == wanted
    assert all(a != b for (_, a), (_, b) in pairwise(runs))
