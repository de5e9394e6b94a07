"""The ids of a marker: one where it is a token, else every form in which a tokenizer writes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import PreTrainedTokenizerBase

from draftmill.rendering.marker_forms import BEFORE, BEHIND, marker_forms, places

Shaped = Callable[[str, str], PreTrainedTokenizerBase]


def test_a_token_has_one_form(shaped: Shaped) -> None:
    assert marker_forms(shaped("kimi", "{{ messages }}"), "</think>") == ((163607,),)


@pytest.mark.parametrize("marker", ["<think>", "</think>", "<|START_THINKING|>", "[/THINK]"])
def test_every_context_has_exactly_one_form_and_it_covers_the_marker(shaped: Shaped, marker: str) -> None:
    tokenizer = shaped("bare", "{{ messages }}")
    forms = marker_forms(tokenizer, marker)
    assert all(marker in tokenizer.decode(list(form)) for form in forms)
    for before in BEFORE:
        for behind in BEHIND:
            ids = tuple(tokenizer.encode(before + marker + behind, add_special_tokens=False))
            assert len(places(ids, forms)) == 1, (before, behind)


def test_a_form_has_no_id_beside_the_marker(shaped: Shaped) -> None:
    tokenizer = shaped("bare", "{{ messages }}")
    for form in marker_forms(tokenizer, "</think>"):
        inner = tokenizer.decode(list(form[1:])), tokenizer.decode(list(form[:-1]))
        assert all("</think>" not in text for text in inner)


def test_a_token_and_text_behind_it(shaped: Shaped) -> None:
    tokenizer = shaped("qwen3", "{{ messages }}")
    forms = marker_forms(tokenizer, "<tool_call>weather")
    assert {form[0] for form in forms} == {151657}
    assert places((1, *forms[0], 2), forms) == [(1, 1 + len(forms[0]))]


def test_places_are_in_order_and_of_any_form() -> None:
    assert places((1, 2, 3, 1, 9, 1, 2), ((1, 2), (1, 9))) == [(0, 2), (3, 5), (5, 7)]
    assert places((1, 2), ((1, 2, 3),)) == []
