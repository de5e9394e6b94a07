"""The parts of a row, as people are shown them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What an id belongs to."""

    PROMPT = "prompt"
    MARKER = "marker"
    REASONING = "reasoning"
    CONTENT = "content"
    END = "end"


STYLES = {
    Part.PROMPT: "dim",
    Part.MARKER: "bold magenta",
    Part.REASONING: "cyan",
    Part.CONTENT: "green",
    Part.END: "bold red",
}
"""How a terminal colours them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One id: its part, and its text when the tokenizer is at hand."""

    id: int
    part: Part
    text: str | None
