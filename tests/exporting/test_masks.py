"""The loss mask: what is learnt of a row, and that its parts fit together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.exporting.masks import Mask, loss_mask, supervised
from draftmill.records import Thinking

# prompt 0 1 2 | reasoning 3 4, closed at 5 | content 6 7, end 8
CLOSED = {"start": 3, "end": 9, "reasoning_end": 5, "finish_reason": "stop", "stop_id": 2}
INSIDE = {"start": 3, "end": 9, "reasoning_end": None, "finish_reason": "length", "stop_id": None}
WITHOUT = {"start": 3, "end": 9, "reasoning_end": None, "finish_reason": "stop", "stop_id": 2}


@pytest.mark.parametrize(
    ("span", "thinking", "reasoning", "content"),
    [
        (CLOSED, Thinking.OPENED_BY_PROMPT, [(3, 6)], [(6, 9)]),
        (CLOSED, Thinking.OPENED_BY_MODEL, [(3, 6)], [(6, 9)]),
        (INSIDE, Thinking.OPENED_BY_PROMPT, [(3, 9)], []),
        (INSIDE, Thinking.OPENED_BY_MODEL, [(3, 9)], []),
        (INSIDE, Thinking.CLOSED_BY_PROMPT, [], [(3, 9)]),
        (INSIDE, Thinking.NONE, [], [(3, 9)]),
        (WITHOUT, Thinking.CLOSED_BY_PROMPT, [], [(3, 9)]),
        (WITHOUT, Thinking.OPENED_BY_MODEL, [], [(3, 9)]),
    ],
)
def test_the_parts_of_a_span(span: Any, thinking: Thinking, reasoning: Any, content: Any) -> None:
    assert supervised([span], Mask.COMPLETION, thinking) == [(3, 9)]
    assert supervised([span], Mask.REASONING, thinking) == reasoning
    assert supervised([span], Mask.CONTENT, thinking) == content


@st.composite
def rows(draw: st.DrawFn) -> tuple[int, list[dict[str, Any]], Thinking]:
    """A row's length, its spans in order with prompts between them, and who opens the reasoning."""
    place, spans = draw(st.integers(1, 5)), []
    for _ in range(draw(st.integers(1, 4))):
        end = place + draw(st.integers(1, 9))
        closed = draw(st.none() | st.integers(place, end - 1))
        spans.append(
            {
                "start": place,
                "end": end,
                "reasoning_end": closed,
                "finish_reason": draw(st.sampled_from(("stop", "length"))),
            }
        )
        place = end + draw(st.integers(0, 4))
    return place, spans, draw(st.sampled_from(Thinking))


@given(row=rows())
def test_reasoning_and_content_are_apart_and_together_the_completion(row: Any) -> None:
    length, spans, thinking = row
    masks = {mask: loss_mask(length, supervised(spans, mask, thinking)) for mask in Mask}
    assert np.array_equal(masks[Mask.REASONING] + masks[Mask.CONTENT], masks[Mask.COMPLETION])
    generated = {place for span in spans for place in range(span["start"], span["end"])}
    assert set(np.flatnonzero(masks[Mask.COMPLETION]).tolist()) == generated
