"""The ids of a marker: one where it is a token, else every form in which a tokenizer writes it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from draftmill.judging.structure import Form, Marker, ids_at
from draftmill.rendering import marker_forms as module
from draftmill.rendering.marker_forms import (
    USUAL_BEFORE,
    USUAL_BEHIND,
    marker_forms,
    num_forms,
    opening_beginnings,
    places,
)

Shaped = Callable[[str, str], PreTrainedTokenizerBase]


def spelled(forms: tuple[Form, ...]) -> set[Marker]:
    """Every marker of the forms."""
    return {ids for form in forms for ids in itertools.product(*(ids_at(form, place) for place in range(len(form))))}


@pytest.fixture
def bare(shaped: Shaped) -> PreTrainedTokenizerBase:
    """SmolLM2's vocabulary, to which markers of reasoning are ordinary text."""
    return shaped("bare", "{{ messages }}")


def test_a_token_has_one_form(shaped: Shaped) -> None:
    assert marker_forms(shaped("kimi", "{{ messages }}"), "</think>") == ((163607,),)


@pytest.mark.parametrize("marker", ["<think>", "</think>", "<|START_THINKING|>", "[/THINK]"])
def test_every_context_has_exactly_one_form_and_it_covers_the_marker(
    bare: PreTrainedTokenizerBase, marker: str
) -> None:
    forms = marker_forms(bare, marker)
    assert all(marker in bare.decode(list(ids)) for ids in spelled(forms))
    for before in USUAL_BEFORE:
        for behind in USUAL_BEHIND:
            ids = tuple(bare.encode(before + marker + behind, add_special_tokens=False))
            assert len(places(ids, forms)) == 1, (before, behind)


def test_a_form_has_no_id_beside_the_marker(bare: PreTrainedTokenizerBase) -> None:
    for ids in spelled(marker_forms(bare, "</think>")):
        inner = bare.decode(list(ids[1:])), bare.decode(list(ids[:-1]))
        assert all("</think>" not in text for text in inner)


@pytest.mark.parametrize("marker", ["<think>", "</think>"])
@given(before=st.text(max_size=6), behind=st.text(max_size=6))
def test_no_neighbour_hides_a_marker(shaped: Shaped, marker: str, before: str, behind: str) -> None:
    tokenizer = shaped("bare", "{{ messages }}")
    ids = tuple(tokenizer.encode(before + marker + behind, add_special_tokens=False))
    assert places(ids, marker_forms(tokenizer, marker))


def test_every_neighbour_in_the_vocabulary_counts(bare: PreTrainedTokenizerBase) -> None:
    """Every token that ends with a beginning of the marker, or begins with an end of it, may be a part of one."""
    forms = marker_forms(bare, "</think>")
    tokens = [token for token in bare.get_vocab() if token.endswith("</") or token.startswith(">")]
    assert len(tokens) > 15
    for token in tokens:
        text = bare.convert_tokens_to_string([token])
        written = text + "think>" if token.endswith("</") else "</think" + text
        assert places(tuple(bare.encode(written, add_special_tokens=False)), forms), token


def test_the_forms_are_few_lists_and_one_that_is_shown(bare: PreTrainedTokenizerBase) -> None:
    first, *lists = marker_forms(bare, "</think>")
    assert all(isinstance(index, int) for index in first)
    assert len(lists) <= 4
    assert num_forms((first, *lists)) == len(spelled(tuple(lists))) > 30
    assert num_forms(((1, 2),)) == 1


def test_of_too_many_neighbours_the_usual_ones_are_combined(
    bare: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = spelled(marker_forms(bare, "</think>"))
    monkeypatch.setattr(module, "USUAL_BEFORE", ("",))
    monkeypatch.setattr(module, "USUAL_BEHIND", ("\n", ""))
    monkeypatch.setattr(module, "MOST_CONTEXTS", 200)
    some = spelled(marker_forms(copy.copy(bare), "</think>"))
    assert some < whole
    assert {ids[0] for ids in some} == {ids[0] for ids in whole}
    assert {ids[-1] for ids in some} == {ids[-1] for ids in whole}


def test_a_token_and_text_behind_it(shaped: Shaped) -> None:
    tokenizer = shaped("qwen3", "{{ messages }}")
    forms = marker_forms(tokenizer, "<tool_call>weather")
    assert {ids[0] for ids in spelled(forms)} == {151657}
    assert places((1, *next(iter(spelled(forms[:1]))), 2), forms) == [(1, 1 + len(forms[0]))]


def test_the_beginning_of_an_answer_that_opens(shaped: Shaped) -> None:
    tokenizer = shaped("qwen3", "{{ messages }}")
    found = opening_beginnings(tokenizer, ["<think>", "<reasoning>"])
    assert found[(151667,)] == "<think>"
    for text in ("<reasoning>\nSo", "<reasoning>So", " <reasoning>7", "\n\n<reasoning>**"):
        ids = tuple(tokenizer.encode(text, add_special_tokens=False))
        assert any(found.get(ids[start:end]) == "<reasoning>" for start in range(3) for end in range(7)), text


def test_places_are_in_order_and_of_any_form() -> None:
    assert places((1, 2, 3, 1, 9, 1, 2), ((1, 2), (1, 9))) == [(0, 2), (3, 5), (5, 7)]
    assert places((1, 2), ((1, 2, 3),)) == []
    assert places((4, 1, 5, 3, 2), ((1, 2), ((3, 1), (2, 5)))) == [(1, 3), (3, 5)]
