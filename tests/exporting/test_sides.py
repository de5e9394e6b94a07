"""Where rows go: samples and turns of one prompt together, whatever comes in later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from draftmill.dataset.status import existing
from draftmill.dataset.storage import open_storage
from draftmill.exporting.sides import Side, Sides
from draftmill.exporting.sources import Source
from draftmill.rendering.conversation import Conversation
from tests.exporting.conftest import Datasets, Made

HALF = 0.5


def said(*texts: str) -> list[dict[str, Any]]:
    """User and assistant in turn."""
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def turn_row(turn: int, *texts: str, variant: str = "think") -> dict[str, Any]:
    """The row of a turn of this conversation, as a run with `prompts.turns: all` seals it."""
    conversation = Conversation.of(said(*texts), None)
    written = json.dumps({"messages": said(*texts), "tools": None})
    return {"prompt_key": conversation.prompt_key(turn, variant), "variant": variant, "messages": written}


@pytest.fixture
def source(datasets: Datasets) -> Source:
    url = datasets.make([Made("any")])
    storage = open_storage(url)
    return Source(url, storage, existing(storage), 1.0, {})


def test_turns_go_where_the_first_goes_though_the_conversation_grew_in_between(source: Source) -> None:
    sides = Sides(HALF, source)
    seen = set()
    for number in range(40):
        first, answer = f"question {number}", "an answer"
        bare = turn_row(0, first)
        rows = [
            turn_row(0, first, answer, "more?"),
            turn_row(1, first, answer, "more?"),
            turn_row(2, first, answer, "more?", "yes", "and?"),
            turn_row(1, first, "another answer", "something else"),
        ]
        assert len({row["prompt_key"] for row in (bare, *rows)}) == 4, "the first turn's key is that of the bare prompt"
        assert {sides.side(row) for row in rows} == {sides.side(bare)}
        seen.add(sides.side(bare))
    assert seen == set(Side)


def test_what_shares_only_a_label_does_not_move(datasets: Datasets) -> None:
    """A line that comes in above gives `prompts.jsonl:1` to another prompt."""
    old = [
        Made(f"old {n}", prompt=9, prompt_id=f"prompts.jsonl:{n}", messages=json.dumps({"messages": said(f"old {n}")}))
        for n in range(40)
    ]
    new = [
        Made(f"new {n}", prompt=3, prompt_id=f"prompts.jsonl:{n}", messages=json.dumps({"messages": said(f"new {n}")}))
        for n in range(40)
    ]

    def of_the_old(url: str) -> list[Side]:
        storage = open_storage(url)
        sides = Sides(HALF, Source(url, storage, existing(storage), 1.0, {}))
        return [sides.side(row.columns) for row in old]

    url = datasets.make(old, turns="all")
    before = of_the_old(url)
    assert set(before) == set(Side)
    datasets.make(new, onto=url, turns="all")
    assert of_the_old(url) == before


def test_without_messages_a_conversation_is_told_by_its_label(datasets: Datasets, source: Source) -> None:
    rows = [Made(f"{n} turn {k}", prompt=3 + 5 * k, prompt_id=f"talk {n}") for n in range(40) for k in range(3)]
    url = datasets.make(rows, turns="all")
    storage = open_storage(url)
    sides = Sides(HALF, Source(url, storage, existing(storage), 1.0, {}))
    by_talk = [{sides.side(row.columns) for row in rows[start : start + 3]} for start in range(0, 120, 3)]
    first_turns = Sides(HALF, source)  # of a dataset that knows nothing of the talks
    assert by_talk == [{first_turns.side(rows[start].columns)} for start in range(0, 120, 3)]
    assert {Side.TRAIN} in by_talk
    assert {Side.VALIDATION} in by_talk


def test_the_share_is_what_was_asked(source: Source) -> None:
    sides = Sides(0.1, source)
    found = [sides.side(turn_row(0, f"question {n}")) for n in range(2000)]
    assert 140 < found.count(Side.VALIDATION) < 260
    assert {Sides(0.0, source).side(turn_row(0, "any"))} == {Side.TRAIN}
