"""An id's text as people are shown it, and what it really is.

The text is for people only and untrusted: it comes out with every control
character escaped (plain_text). Many ids of a byte-level vocabulary are no whole
character: those are shown as their bytes, never as a replacement mark, which
would hide which ones. An id that the tokenizer does not know has no text at all:
quarantined rows may hold such ids, and are to be looked at all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftmill.reporting.plain_text import plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"

SPACE = "\u2581"
"""How SentencePiece's vocabularies write it."""


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """`text`: what it reads as, or its bytes in hexadecimal where it is `half` a character; `raw`: its piece in the
    vocabulary. Both are safe to show, both empty where the tokenizer does not know the id."""

    text: str
    raw: str
    half: bool = False


class TokenPieces:
    """The pieces of one tokenizer, each looked up once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, TokenPiece] = {}

    def piece(self, token_id: int) -> TokenPiece:
        """Of this id."""
        if token_id not in self._known:
            self._known[token_id] = self._look_up(token_id)
        return self._known[token_id]

    def _look_up(self, token_id: int) -> TokenPiece:
        raw = self._raw(token_id)
        if raw is None:
            return TokenPiece("", "")
        text = str(self._tokenizer.decode([token_id], skip_special_tokens=False))
        if REPLACEMENT not in text:
            return TokenPiece(plain(_spaced(text, raw)), plain(raw))
        found = _bytes_of(raw)
        if found is not None and _is_text(found):  # the replacement mark itself, as a word of the vocabulary
            return TokenPiece(plain(text), plain(raw))
        return TokenPiece(plain(raw) if found is None else _shown(found), plain(raw), half=True)

    def _raw(self, token_id: int) -> str | None:
        try:
            raw = self._tokenizer.convert_ids_to_tokens(token_id)
        except (LookupError, OverflowError):  # tokenizers written in Python look it up; Rust's takes no negative number
            return None
        return raw if isinstance(raw, str) else None


def _spaced(text: str, raw: str) -> str:
    """With the space that SentencePiece drops where a text begins: in a row the id has it."""
    spaced = raw.replace(SPACE, " ")
    return spaced if text == spaced.lstrip(" ") else text


def _bytes_of(raw: str) -> bytes | None:
    """What a piece of a byte-level vocabulary, or SentencePiece's byte fallback, stands for; None: it is neither."""
    if raw.startswith("<0x") and raw.endswith(">") and len(raw) == len("<0xFF>"):
        return bytes.fromhex(raw[3:-1])
    if not all(character in BYTE_OF for character in raw):
        return None
    return bytes(BYTE_OF[character] for character in raw)


def _is_text(found: bytes) -> bool:
    try:
        found.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(found: bytes) -> str:
    return f"\u27e8{found.hex(' ').upper()}\u27e9"


def _byte_level() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_level()
"""GPT-2's alphabet, in which byte-level vocabularies are written: printable bytes are themselves, the others follow
from U+0100 on."""
