"""One row for human eyes: its ids cut into prompt, markers, reasoning, content and end.

The pieces of text beside the ids are for people only; the ids are the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftmill.dataset.manifest import Manifest
from draftmill.dataset.origin import origin
from draftmill.dataset.status import existing
from draftmill.dataset.storage import Storage, open_checked
from draftmill.dataset.stored import listed_table
from draftmill.errors import DraftmillError, RecipeError
from draftmill.judging.structure import Structure
from draftmill.recipe_file import parse_recipe
from draftmill.records import Thinking
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.row_parts import Part, Piece

SHORTEST_KEY = 4
"""Characters of a row key's beginning that count as a key, not as a number."""


@dataclass(frozen=True, slots=True)
class RowView:
    """A row's columns (ids aside), the manifest that brought it, and its pieces."""

    columns: dict[str, Any]
    manifest: int
    pieces: list[Piece]


def row_view(url: str, row: str) -> RowView:
    """The row with that number (good rows first, then quarantine) or that beginning of its key.

    Raises RecipeError when there is none, or when the beginning fits several.
    """
    storage = open_checked(url)
    manifest = existing(storage)
    columns, version = _find(storage, manifest, row)
    ids = columns.pop("input_ids")
    parts = _parts(ids, columns, Structure.from_json(manifest.structures[columns["variant"]]))
    texts = _texts(manifest, ids)
    return RowView(columns, version, [Piece(*piece) for piece in zip(ids, parts, texts, strict=True)])


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


def _parts(ids: list[int], columns: dict[str, Any], structure: Structure) -> list[Part]:
    markers = _places(ids, structure.open_ids) | _places(ids, structure.close_ids)
    parts = [Part.PROMPT] * len(ids)
    for span in columns["spans"]:
        for position in range(span["start"], span["end"]):
            parts[position] = _part(position, span, position in markers, structure)
    return parts


def _part(position: int, span: dict[str, Any], is_marker: bool, structure: Structure) -> Part:
    """What an id of a generated span belongs to."""
    if position == span["end"] - 1 and span["stop_id"] is not None:
        return Part.END
    if is_marker:
        return Part.MARKER
    close = span["reasoning_end"]
    inside = structure.thinking in (Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL)
    return Part.REASONING if inside and (close is None or position < close) else Part.CONTENT


def _places(ids: list[int], marker: tuple[int, ...]) -> set[int]:
    """The positions of a marker of one id or several."""
    starts = (i for i in range(len(ids)) if marker and tuple(ids[i : i + len(marker)]) == marker)
    return {start + k for start in starts for k in range(len(marker))}


def _texts(manifest: Manifest, ids: list[int]) -> list[str | None]:
    try:
        tokenizer = load_tokenizer(parse_recipe(manifest.recipe, origin="the manifest").model)
    except DraftmillError:
        return [None] * len(ids)  # a dataset can be looked at without its tokenizer
    return [_text(tokenizer, i) for i in ids]


def _text(tokenizer: Any, token_id: int) -> str:
    text = tokenizer.decode([token_id])
    # Half a character: the raw piece says more than a replacement mark.
    return str(tokenizer.convert_ids_to_tokens(token_id)) if "\ufffd" in text else str(text)
