"""A manifest's statistics, held against a slow reference that counts row by row, span by span."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset.statistics import MEASURED, QUANTILES, Lengths, Statistics, statistics

THINKS = {"think": {"thinking": "opened_by_prompt"}, "opens": {"thinking": "opened_by_model"}}
STRUCTURES = THINKS | {"fast": {"thinking": "closed_by_prompt"}, "plain": {"thinking": "none"}}
RECIPE = {"variants": [{"name": "think", "share": 0.75}, {"name": "fast", "share": 0.25}]}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=MEASURED)


def of(*rows: dict[str, Any], recipe: dict[str, Any] | None = None) -> Statistics:
    return statistics(table(*rows), manifest=3, structures=STRUCTURES, recipe=recipe or {})


def row(*spans: tuple[int, int, int | None, str, int | None], variant: str = "think", **changes: Any) -> dict[str, Any]:
    """A row of spans (start, end, reasoning_end, finish_reason, stop_id)."""
    names = ("start", "end", "reasoning_end", "finish_reason", "stop_id")
    made = [dict(zip(names, span, strict=True)) for span in spans]
    return {"variant": variant, "prompt_key": "p", "spans": made, "reason": None} | changes


def means(found: Statistics) -> dict[str, float]:
    return {part: lengths.mean for part, lengths in found.total.lengths.items()}


def test_an_answer_is_reasoning_content_and_the_id_that_ends_the_turn() -> None:
    """100 prompt ids; ids 100 to 160 are reasoning with its closing marker, 161 to 198 content, 199 ends the turn."""
    found = of(row((100, 200, 160, "stop", 7)))
    assert means(found) == {"prompt": 100, "reasoning": 61, "content": 38, "output": 100, "stopped": 100}
    assert (found.total.cut, found.total.no_reasoning) == (0, 0)


def test_cut_inside_its_reasoning_it_has_no_content() -> None:
    found = of(row((100, 200, None, "length", None)))
    assert means(found) == {"prompt": 100, "reasoning": 100, "output": 100, "cut": 100}
    assert (found.total.cut, found.total.cut_in_reasoning, found.total.no_reasoning) == (1, 1, 0)


def test_cut_behind_its_reasoning_it_has_both() -> None:
    found = of(row((100, 200, 160, "length", None)))
    assert means(found) == {"prompt": 100, "reasoning": 61, "content": 39, "output": 100, "cut": 100}
    assert (found.total.cut, found.total.cut_in_reasoning) == (1, 0)


@pytest.mark.parametrize("variant", ["fast", "plain", "unknown"])
def test_where_no_reasoning_is_opened_all_is_content(variant: str) -> None:
    found = of(row((100, 200, None, "length", None), variant=variant))
    assert means(found) == {"prompt": 100, "content": 100, "output": 100, "cut": 100}
    assert (found.total.cut_in_reasoning, found.total.no_reasoning) == (0, 1)


def test_every_span_is_an_answer() -> None:
    found = of(row((10, 20, 15, "stop", 7), (40, 60, 50, "stop", 7), (90, 130, None, "length", None)))
    assert (found.total.rows, found.total.answers, found.total.cut_in_reasoning) == (1, 3, 1)
    assert means(found)["prompt"] == pytest.approx((10 + 40 + 90) / 3, abs=0.01)
    assert means(found)["reasoning"] == pytest.approx((6 + 11 + 40) / 3, abs=0.01)


def test_the_rule_about_cut_rows_moves_no_length() -> None:
    rows = [row((10, 20, 15, "stop", 7)), row((10, 90, None, "length", None))]
    apart = [rows[0], rows[1] | {"reason": "truncated"}]
    kept, quarantined = of(*rows), of(*apart)
    assert (kept.total.lengths, kept.total.cut) == (quarantined.total.lengths, quarantined.total.cut)
    assert (kept.total.reasons, quarantined.total.reasons) == ({}, {"truncated": 1})


def test_rows_with_another_fault_count_as_rows_only() -> None:
    found = of(row((10, 5000, None, "length", None), reason="degenerate"))
    assert (found.total.rows, found.total.reasons, found.total.answers, found.total.lengths) == (
        1,
        {"degenerate": 1},
        0,
        {},
    )


def test_a_variant_without_a_row_is_there_with_none() -> None:
    found = of(row((10, 20, 15, "stop", 7)), recipe=RECIPE)
    assert {name: (n.prompts, n.share) for name, n in found.variants.items()} == {"think": (1, 0.75), "fast": (0, 0.25)}
    assert (found.total.prompts, found.total.share) == (1, None)


def test_samples_of_a_prompt_are_rows_and_one_prompt() -> None:
    found = of(*(row((10, 20, 15, "stop", 7)) for _ in range(3)))
    assert (found.total.rows, found.total.prompts) == (3, 1)


def test_it_survives_json() -> None:
    found = of(row((10, 20, 15, "stop", 7)), recipe=RECIPE)
    assert Statistics.model_validate_json(found.model_dump_json()) == found


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    spans, at = [], 0
    for _ in range(draw(st.integers(1, 3))):
        start = at + draw(st.integers(1, 50))
        end = start + draw(st.integers(1, 200))
        closed = draw(st.none() | st.integers(start, end - 1))
        finish = draw(st.sampled_from(["stop", "length"]))
        ended = finish == "stop" and (closed is None or closed < end - 1) and draw(st.booleans())
        spans.append((start, end, closed, finish, 7 if ended else None))
        at = end
    return row(
        *spans,
        variant=draw(st.sampled_from(["think", "opens", "fast", "plain"])),
        prompt_key=draw(st.sampled_from("abc")),
        reason=draw(st.sampled_from([None, None, "truncated", "degenerate", "aborted"])),
    )


def reference(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """From the definitions, one answer at a time."""
    parts: dict[str, list[int]] = {}
    counts = {"answers": 0, "cut": 0, "cut_in_reasoning": 0, "no_reasoning": 0}

    def measure(part: str, length: int) -> None:
        parts.setdefault(part, []).append(length)

    for one in rows:
        if one["reason"] not in (None, "truncated"):
            continue
        for span in one["spans"]:
            ids = list(range(span["start"], span["end"]))
            cut, closed = span["finish_reason"] == "length", span["reasoning_end"]
            inside = cut and closed is None and one["variant"] in THINKS
            counts["answers"] += 1
            counts["cut"] += cut
            counts["cut_in_reasoning"] += inside
            counts["no_reasoning"] += closed is None and not inside
            measure("prompt", span["start"])
            measure("output", len(ids))
            measure("cut" if cut else "stopped", len(ids))
            if closed is not None:
                measure("reasoning", len([i for i in ids if i <= closed]))
            elif inside:
                measure("reasoning", len(ids))
            if not inside:
                body = ids if span["stop_id"] is None else ids[:-1]
                measure("content", len([i for i in body if closed is None or i > closed]))
    return {
        **counts,
        "rows": len(rows),
        "prompts": len({one["prompt_key"] for one in rows}),
        "reasons": {r: sum(one["reason"] == r for one in rows) for r in {one["reason"] for one in rows} - {None}},
        "parts": parts,
    }


def lengths_agree(found: Lengths, values: list[int]) -> None:
    mean = sum(values) / len(values)
    assert found.answers == len(values)
    assert found.mean == pytest.approx(mean, abs=0.006)
    assert found.sd == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)), abs=0.006)
    assert found.max == max(values)
    for name, share in QUANTILES.items():
        # Nearest rank: the least length that this share of the answers stays within.
        least = min(v for v in values if sum(w <= v for w in values) >= share * len(values))
        assert getattr(found, name) == least


@given(st.lists(rows(), min_size=1, max_size=12))
def test_as_a_slow_reference_counts_them(made: list[dict[str, Any]]) -> None:
    found = of(*made)
    groups = {"total": (found.total, made)}
    groups |= {
        name: (numbers, [one for one in made if one["variant"] == name]) for name, numbers in found.variants.items()
    }
    assert set(found.variants) == {one["variant"] for one in made}
    for numbers, members in groups.values():
        wanted = reference(members)
        parts = wanted.pop("parts")
        assert {name: getattr(numbers, name) for name in wanted} == wanted
        assert set(numbers.lengths) == set(parts)
        for part, values in parts.items():
            lengths_agree(numbers.lengths[part], values)
