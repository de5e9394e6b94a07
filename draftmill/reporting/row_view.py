"""One row for human eyes: its ids cut into prompt, markers, reasoning, content and end.

The pieces of text beside the ids are for people only; the ids are the row. Half a
character is shown as its bytes (reporting/pieces.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.origin import origin
from draftmill.dataset.status import existing
from draftmill.dataset.storage import Storage, open_checked
from draftmill.dataset.stored import listed_table
from draftmill.errors import DraftmillError, RecipeError
from draftmill.exporting.masks import Mask, loss_mask, supervised
from draftmill.judging.structure import Structure
from draftmill.recipe_file import parse_recipe
from draftmill.records import Thinking
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.cut import parts
from draftmill.reporting.pieces import TokenPiece, TokenPieces
from draftmill.reporting.row_parts import Piece

NO_PIECE = TokenPiece("", "")

SHORTEST_KEY = 4
"""Characters of a row key's beginning that count as a key, not as a number."""


@dataclass(frozen=True, slots=True)
class RowView:
    """A row's columns (ids aside), the manifest that brought it, and its pieces."""

    columns: dict[str, Any]
    manifest: int
    pieces: list[Piece]
    thinking: Thinking

    def supervised(self, mask: Mask) -> list[bool]:
        """Which of its ids a trainer learns from under this mask."""
        intervals = supervised(self.columns["spans"], mask, self.thinking)
        return [bool(on) for on in loss_mask(len(self.pieces), intervals)]

    def places(self, token_id: int) -> list[int]:
        """The positions of this id."""
        return [position for position, piece in enumerate(self.pieces) if piece.id == token_id]


def row_view(url: str, row: str) -> RowView:
    """The row with that number (good rows first, then quarantine) or that beginning of its key.

    Raises RecipeError when there is none, or when the beginning fits several.
    """
    storage = open_checked(url)
    manifest = existing(storage)
    columns, version = _find(storage, manifest, row)
    ids = columns.pop("input_ids")
    structure = Structure.from_json(manifest.structures[columns["variant"]])
    pieces = [
        Piece(token_id, part, piece.text or piece.raw or None)
        for token_id, part, piece in zip(
            ids, parts(ids, columns["spans"], structure), _pieces(manifest, ids), strict=True
        )
    ]
    return RowView(columns, version, pieces, structure.thinking)


def _find(storage: Storage, manifest: Manifest, row: str) -> tuple[dict[str, Any], int]:
    """The row's columns, and the version that brought it."""
    seen = 0
    found: list[tuple[dict[str, Any], int]] = []
    for ref in (*manifest.shards, *manifest.quarantine):
        keys = listed_table(storage, ref.path, ["row_key"])["row_key"].to_pylist()
        hits = [i for i, key in enumerate(keys) if _names(row, key, seen + i)]
        seen += len(keys)
        if hits:
            rows = listed_table(storage, ref.path).take(hits).to_pylist()
            found += [(columns, origin(manifest, ref.path, hit)) for columns, hit in zip(rows, hits, strict=True)]
    # A good row and a newer bad attempt have one key: the good one, which comes first, is the row.
    if len({columns["row_key"] for columns, _ in found}) != 1:
        raise RecipeError(
            "no such row" if not found else f"{len(found)} rows fit",
            value=row,
            expected=f"a number from 0 to {seen - 1}, or the beginning of one row_key",
            remedy="give another number or more of the key",
        )
    return found[0]


def _names(row: str, key: str, number: int) -> bool:
    return row == str(number) if row.isdecimal() and len(row) < 64 else len(row) >= SHORTEST_KEY and key.startswith(row)


def _pieces(manifest: Manifest, ids: Sequence[int]) -> list[TokenPiece]:
    try:
        tokenizer = load_tokenizer(parse_recipe(manifest.recipe, origin="the manifest").model)
    except DraftmillError:
        return [NO_PIECE] * len(ids)  # a dataset can be looked at without its tokenizer
    known = TokenPieces(tokenizer)
    return [known.piece(token_id) for token_id in ids]
