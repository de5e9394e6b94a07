"""Text from prompts, models and servers, made safe for a terminal.

Such text is untrusted: escape sequences could clear or forge what a person
sees, and bidirectional controls could reorder it.
"""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories shown as escapes: controls, formats (bidi), surrogates, private, unassigned, separators."""

_JOINERS = "\u200c\u200d"
"""Format characters that scripts and emoji need, and that move nothing."""


def plain(text: str) -> str:
    """The same text with every control character written as its escape, on one line."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in _JOINERS or unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape").decode("ascii")
