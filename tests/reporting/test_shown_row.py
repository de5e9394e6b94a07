"""What `show` prints: mask and found ids without colours, nothing that acts on the terminal, ids that have no text."""

from __future__ import annotations

import io
import unicodedata
from typing import Any

import pytest
from rich.console import Console

from draftmill.exporting.masks import Mask
from draftmill.records import Thinking
from draftmill.reporting.row_parts import Part, Piece
from draftmill.reporting.row_view import RowView
from draftmill.reporting.shown_row import row_lines
from tests.reporting.page_sample import HOSTILE

SPAN = {"start": 2, "end": 7, "reasoning_end": 4, "finish_reason": "stop", "stop_id": 9}


def view(*, detail: str = "", text: str = "a", length: int = 7) -> RowView:
    pieces = [Piece(10 + position, Part.CONTENT, text) for position in range(length)]
    return RowView({"prompt_id": detail, "spans": [SPAN]}, 3, pieces, Thinking.OPENED_BY_PROMPT)


def printed(shown: RowView, mask: Mask | None = None, find: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    for line in row_lines(shown, mask, find):
        console.print(line)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("mask", "below"),
    [
        (Mask.COMPLETION, "        ^^  ^^  ^^  ^^  ^^"),
        (Mask.REASONING, "        ^^  ^^  ^^"),
        (Mask.CONTENT, "                    ^^  ^^"),
    ],
)
def test_the_mask_is_seen_without_colours(mask: Mask, below: str) -> None:
    lines = printed(view(), mask)
    assert lines[-3:] == ["10  11  12  13  14  15  16", "a   a   a   a   a   a   a", below]
    assert any(line.startswith(f"loss mask       {mask}: {below.count('^^')} of 7 ids") for line in lines)


def test_without_a_mask_nothing_is_marked() -> None:
    assert "^" not in "".join(printed(view()))


def test_an_id_is_shown_with_its_surroundings_only() -> None:
    lines = printed(view(length=30_000), find=20_010)
    assert "found           id 20010 at 20000" in lines
    assert "positions 19,988 to 20,012" in lines
    shown = " ".join(lines[lines.index("positions 19,988 to 20,012") :])
    assert "[20010]" in shown
    assert shown.count("...") == 2
    assert len(lines) < 20


def test_places_that_touch_are_shown_once() -> None:
    near = [Piece(5 if position in (3, 20, 90) else 7, Part.CONTENT, "a") for position in range(100)]
    shown = RowView({"spans": []}, 1, near, Thinking.NONE)
    lines = printed(shown, find=5)
    assert [line for line in lines if line.startswith("positions")] == ["positions 0 to 32", "positions 78 to 99"]


def test_an_id_that_is_not_there_is_said() -> None:
    lines = printed(view(), find=99)
    assert "found           id 99 is not in this row" in lines
    assert not any(line.startswith("positions") for line in lines)


@pytest.mark.parametrize("where", ["detail", "text"])
def test_nothing_in_a_row_acts_on_the_terminal(where: str) -> None:
    changes: dict[str, Any] = {where: HOSTILE}
    shown = "".join(printed(view(**changes), Mask.COMPLETION, find=12))
    assert "\\x1b[2J" in shown
    assert "\\u202e" in shown
    assert not [character for character in shown if unicodedata.category(character) in ("Cc", "Cf", "Cs")]


def test_ids_without_text_are_shown_by_their_number() -> None:
    pieces = [Piece(163_999, Part.CONTENT, None), Piece(7, Part.CONTENT, "\u27e8E2 96\u27e9")]
    lines = printed(RowView({"spans": []}, 1, pieces, Thinking.NONE))
    assert lines[-2:] == ["163999  7", "        \u27e8E2\u00b796\u27e9"]
