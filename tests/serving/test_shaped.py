"""A Kimi-shaped tokenizer has Kimi's markers at Kimi's ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from draftmill.serving.shaped import KIMI_MARKERS, shaped_tokenizer

PHRASES = ("Hello, world!", "2026 \u2192 \u4f60\u597d", "  def f(x):\n\treturn x")


def test_kimis_prompt(shaped: Callable[[str, str], PreTrainedTokenizerBase]) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=True, return_dict=False, add_generation_prompt=True
    )
    assert ids[0] == 163587
    assert ids[ids.index(163588) :] == [163588, *tokenizer.encode("assistant"), 163601, 163606]


def test_markers_and_holes(shaped: Callable[[str, str], PreTrainedTokenizerBase]) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    for text, index in KIMI_MARKERS.items():
        assert tokenizer.encode(text, add_special_tokens=False) == [index]
        assert tokenizer.decode([index]) == text
    assert len(tokenizer) < 60_000
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (163584, 163585)


@pytest.mark.parametrize("text", PHRASES)
def test_text_is_the_real_vocabularys(shaped: Callable[[str, str], PreTrainedTokenizerBase], text: str) -> None:
    tokenizer = shaped("kimi", "moonshotai-Kimi-K2.5")
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert max(ids) < 60_000
    assert tokenizer.decode(ids) == text


def test_a_marker_inside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="markers inside the vocabulary"):
        shaped_tokenizer(tmp_path, markers={"<x>": 100}, roles={}, chat_template="")
