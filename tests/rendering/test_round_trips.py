"""Every id of a structure, to its token and back; what does not come back is shown, not raised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from draftmill.judging.derive import derive_structure
from draftmill.recipe import Recipe
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.round_trips import round_trips


@pytest.fixture
def recipe(tmp_path: Any) -> Recipe:
    data = {
        "dataset": "unused",
        "prompts": {"path": "unused"},
        "model": {"name": str(tmp_path), "context_length": 4096},
        "sampling": {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
    }
    return parse_recipe(data, origin="the test")


def test_kimis_markers_come_back_each_with_what_it_is(shaped: Any, recipe: Recipe) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    structure = derive_structure(tokenizer, recipe)
    trips = {trip.id: trip for trip in round_trips(tokenizer, structure)}
    named = {*structure.open_ids, *structure.close_ids, *structure.end_ids, *structure.foreign_ids}
    assert trips.keys() == named | {structure.highest_id}
    assert all(trip.holds for trip in trips.values())
    opened = trips[163606]
    assert (opened.kind, opened.token, opened.alone) == ("opens the reasoning", "<think>", "<think>")
    assert trips[163607].kind == "closes the reasoning"
    assert trips[163586].kind == "ends the turn"


def test_an_id_the_tokenizer_does_not_know_has_no_token(shaped: Any, recipe: Recipe) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    structure = replace(derive_structure(tokenizer, recipe), end_ids=(999_999,))
    (trip,) = [trip for trip in round_trips(tokenizer, structure) if trip.id == 999_999]
    assert (trip.token, trip.back, trip.alone, trip.holds) == (None, None, None, False)


def test_a_token_that_maps_to_another_id_does_not_hold(shaped: Any, recipe: Recipe, monkeypatch: Any) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    structure = derive_structure(tokenizer, recipe)
    monkeypatch.setattr(tokenizer, "convert_tokens_to_ids", lambda token: 5)
    trips = round_trips(tokenizer, structure)
    assert not any(trip.holds for trip in trips if trip.id != 5)


def test_a_piece_that_is_no_text_of_its_own_is_asked_of_no_server(shaped: Any, recipe: Recipe) -> None:
    """A byte of a longer character."""
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    structure = derive_structure(tokenizer, recipe)
    halves = [index for index in range(300) if "\ufffd" in tokenizer.decode([index])][:1]
    assert halves
    trips = round_trips(tokenizer, replace(structure, end_ids=tuple(halves)))
    assert all(trip.alone is None for trip in trips if trip.id in halves)
