"""JSON lines: one row a line whatever its text, and nothing in it that a terminal would obey."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.exporters._rows import json_line

HOSTILE = {
    "colour": "\x1b[31m",
    "C1 control": "\x9b31m",
    "bidirectional": "\u202eevil\u2066",
    "NUL": "\0",
    "separator": "\u2028\u2029\x85",
    "tags": "\U000e0041",
    "mark": "\ufeff",
}


@given(text=st.text())
def test_readers_get_the_text_back_from_one_line(text: str) -> None:
    line = json_line({"derived_text": text})
    assert json.loads(line) == {"derived_text": text}
    assert line.decode().splitlines() == [line.decode().removesuffix("\n")]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_a_terminal_obeys_is_escaped(text: str) -> None:
    line = json_line({"derived_text": f"a {text} b"}).decode().removesuffix("\n")
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Cf", "Zl", "Zp"}
    assert json.loads(line) == {"derived_text": f"a {text} b"}


def test_other_scripts_and_emoji_stay_readable() -> None:
    text = "強い意志 مرحبا क्‍ष 👩‍💻"
    assert text in json_line({"derived_text": text}).decode()
