"""Untrusted text on a terminal: nothing in it moves the cursor, hides or reorders what a person sees."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from draftmill.reporting.bar import BarListener
from draftmill.reporting.plain_text import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\x00b", "a\\x00b"),
        ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\u200bzero width", "\\u200bzero width"),
        ("\ufeffbom", "\\ufeffbom"),
        ("\x9b31m", "\\x9b31m"),
        ("\u2028line", "\\u2028line"),
        ("half \ud83d", "half \\ud83d"),
        ("\U000e0041tag", "\\U000e0041tag"),
    ],
)
def test_what_could_forge_a_screen_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    "text", ["", "plain", "日本語 العربية हिन्दी", "👩‍💻 👍🏽 ❤️", "می‌خواهم", "[bold]markup[/bold]", "a\\nb"]
)
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    shown = plain(text)
    assert all(
        character in "\u200c\u200d" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        for character in shown
    )
    shown.encode()
    assert plain(shown) == shown


def test_a_servers_words_reach_the_terminal_as_text() -> None:
    screen = io.StringIO()
    with BarListener(Console(file=screen, force_terminal=True, highlight=False)) as bar:
        bar.wait("http://h is not ready (\x1b[2Jall good); waiting")
    assert "\x1b[2J" not in screen.getvalue()
    assert "\\x1b[2Jall good" in screen.getvalue()
