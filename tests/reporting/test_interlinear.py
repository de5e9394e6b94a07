"""Ids over their text: every id above its own text, within the width, the marked one in brackets."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from draftmill.reporting.interlinear import Interlinear
from draftmill.reporting.row_parts import Part, Piece


def printed(interlinear: Interlinear, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(interlinear)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def pieces(*items: tuple[int, str]) -> list[Piece]:
    return [Piece(index, Part.CONTENT, text) for index, text in items]


def test_spaces_and_control_characters_are_seen() -> None:
    assert printed(Interlinear(pieces((7, " straw"), (163607, "\n"), (8, "\x1b[2J")))) == [
        "7       163607  8",
        "\u00b7straw  \\n      \\x1b[2J",
    ]


def test_the_marked_id_stands_in_brackets_and_the_row_goes_on() -> None:
    shown = printed(Interlinear(pieces((1, "a"), (2, "b")), marked=[1], before=True, after=True))
    assert shown == ["...  1  [2]  ...", "     a  b"]


def test_long_rows_wrap_in_pairs_of_lines() -> None:
    assert printed(Interlinear(pieces((10, "a"), (11, "b"), (12, "c"))), width=6) == ["10  11", "a   b", "", "12", "c"]


def test_supervised_ids_have_a_line_below_them() -> None:
    shown = printed(Interlinear(pieces((7, "a"), (163607, " straw"), (8, "b")), supervised=[False, True, True]))
    assert shown == ["7  163607  8", "a  \u00b7straw  b", "   ^^^^^^  ^"]


def test_supervised_ids_are_underlined_and_keep_their_colour() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=40)
    console.print(Interlinear(pieces((7, "a"), (8, "b")), supervised=[False, True]))
    assert console.file.getvalue().splitlines()[0] == "\x1b[32m7\x1b[0m  \x1b[4;32m8\x1b[0m"  # type: ignore[attr-defined]


@given(st.lists(st.tuples(st.integers(0, 163839), st.text("ab \n\u4f60", min_size=1, max_size=8)), min_size=1))
def test_every_id_is_shown_once_within_the_width(items: list[tuple[int, str]]) -> None:
    lines = printed(Interlinear(pieces(*items)), width=30)
    assert [int(word) for line in lines[::3] for word in line.split()] == [index for index, _ in items]
    assert max(len(line) for line in lines) <= 30
