"""Pieces of ids: whole characters as text, halves as their bytes, nothing that could act on a terminal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from draftmill.reporting.pieces import BYTE_OF, TokenPiece, TokenPieces

CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


def written(found: bytes) -> str:
    """As a byte-level vocabulary writes these bytes."""
    return "".join(CHARACTER_OF[byte] for byte in found)


def byte_level(*vocabulary: bytes) -> PreTrainedTokenizerFast:
    model = models.WordLevel({written(found): number for number, found in enumerate(vocabulary)}, unk_token="none")
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def piece(found: bytes) -> TokenPiece:
    return TokenPieces(byte_level(found)).piece(0)


def test_a_word_reads_as_itself_and_keeps_its_piece() -> None:
    assert piece(b" straw") == TokenPiece(" straw", "\u0120straw")


def test_the_space_that_sentencepiece_drops_at_the_beginning_is_there() -> None:
    tokenizer = Tokenizer(models.WordLevel({"\u2581straw": 0, "x": 1}, unk_token="none"))
    tokenizer.decoder = decoders.Metaspace()
    pieces = TokenPieces(PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False))
    assert pieces.piece(0) == TokenPiece(" straw", "\u2581straw")


def test_half_a_character_is_its_bytes() -> None:
    assert piece("\u2588".encode()[:2]) == TokenPiece("\u27e8E2 96\u27e9", written(b"\xe2\x96"), half=True)
    assert piece(b" \xf0\x9f").text == "\u27e820 F0 9F\u27e9"


def test_the_replacement_mark_itself_is_a_whole_character() -> None:
    assert piece("\ufffd".encode()) == TokenPiece("\ufffd", written(b"\xef\xbf\xbd"))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (b"\x1b[2J", "\\x1b[2J"),
        (b"\x00", "\\x00"),
        (b"\n\n", "\\n\\n"),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe"),
        (b"<script>", "<script>"),  # a page's own business: it sets text only
    ],
)
def test_what_could_act_on_a_terminal_is_escaped(found: bytes, text: str) -> None:
    assert piece(found).text == text


class Strange:
    """A tokenizer written in Python, with SentencePiece's byte fallback and a piece that is no bytes at all."""

    tokens = ("<0xE2>", "\u2581\ufffd", "\x1b\ud800")

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return self.tokens[token_id] if token_id >= 0 else {}[token_id]

    def decode(self, ids: list[int], **_: Any) -> str:
        return "\ufffd"


def test_byte_fallback_and_pieces_that_are_no_bytes() -> None:
    pieces = TokenPieces(Strange())  # type: ignore[arg-type]
    assert pieces.piece(0) == TokenPiece("\u27e8E2\u27e9", "<0xE2>", half=True)
    assert pieces.piece(1) == TokenPiece("\u2581\ufffd", "\u2581\ufffd", half=True)
    assert pieces.piece(2) == TokenPiece("\\x1b\\ud800", "\\x1b\\ud800", half=True)


def test_an_id_that_is_not_in_the_vocabulary_has_no_text() -> None:
    for tokenizer in (byte_level(b"a"), Strange()):
        pieces = TokenPieces(tokenizer)  # type: ignore[arg-type]
        assert {pieces.piece(token_id) for token_id in (-1, 7)} == {TokenPiece("", "")}


@given(st.binary(min_size=1, max_size=4))
def test_bytes_that_are_no_text_are_all_shown(found: bytes) -> None:
    shown = piece(found)
    try:
        found.decode()
    except UnicodeDecodeError:
        assert bytes.fromhex(shown.text[1:-1]) == found
    else:
        assert not shown.half
