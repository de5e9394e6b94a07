"""The rows as the page takes them, and how many of them fit into it.

The whole file has a budget of bytes whatever the dataset. Rows are packed block by
block, in the order of their worth, until it is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from draftmill.exporting.masks import Mask, supervised
from draftmill.judging.structure import Structure
from draftmill.redaction import without_secrets
from draftmill.reporting.cut import part_runs
from draftmill.reporting.page.packing import pack
from draftmill.reporting.page.reading import ShownRow
from draftmill.reporting.pieces import TokenPiece

BLOCK_ROWS = 100
"""Unpacked together: soon enough for who scrolls, and large enough to compress well."""

INDEX_BYTES = 200
"""Of a row in the index: mostly its key, which does not compress."""

PIECE_BYTES = 20
"""Of an id's piece, packed with thousands of others."""

RowJson = dict[str, Any]


def row_json(row: ShownRow, structures: Mapping[str, Structure]) -> RowJson:
    """One row for the page."""
    columns, ids = row.columns, row.ids_T.tolist()
    structure = structures[columns["variant"]]
    spans = columns["spans"]
    return {
        "key": columns["row_key"],
        "prompt_id": columns["prompt_id"],
        "variant": columns["variant"],
        "sample": columns["sample"],
        "attempt": columns["attempt"],
        "reason": columns.get("reason"),
        "detail": without_secrets(detail) if (detail := columns.get("detail")) else "",
        "finish_reason": columns["finish_reason"],
        "prompt_len": columns["prompt_len"],
        "ids": ids,
        "parts": [[end, part.value] for end, part in part_runs(row.ids_T, spans, structure)],
        "masks": {
            mask.value: [list(interval) for interval in supervised(spans, mask, structure.thinking)] for mask in Mask
        },
    }


def blocks_within(
    rows: Iterable[RowJson], max_bytes: int, size: Callable[[list[RowJson]], int] | None = None
) -> list[list[RowJson]]:
    """As many rows from the front as fit, in blocks; the last block may be cut to what fits.

    `size`: what a block costs packed.
    """
    cost = size or _packed_bytes
    found: list[list[RowJson]] = []
    left, known, rest = max_bytes, set[int](), iter(rows)
    while block := list(islice(rest, BLOCK_ROWS)):
        while block and (needed := _needed(block, known, cost)) > left:
            # In proportion, and at least one fewer: a block is packed again only a few times.
            block = block[: min(len(block) - 1, len(block) * max(0, left) // needed)]
        if not block:
            break
        full = len(block) == BLOCK_ROWS
        left -= needed
        known |= _ids(block)
        found.append(block)
        if not full:
            break
    return found


def pieces_of(blocks: Iterable[list[RowJson]], piece: Callable[[int], TokenPiece]) -> dict[int, TokenPiece]:
    """Of every id in them, ascending."""
    ids: set[int] = set()
    for block in blocks:
        ids |= _ids(block)
    return {token_id: piece(token_id) for token_id in sorted(ids)}


def in_order(rows: Mapping[Any, ShownRow], wanted: Iterable[Any]) -> Iterator[ShownRow]:
    """The wanted rows that were found."""
    return (rows[request] for request in wanted if request in rows)


def _needed(block: list[RowJson], known: set[int], size: Callable[[list[RowJson]], int]) -> int:
    return size(block) + len(block) * INDEX_BYTES + len(_ids(block) - known) * PIECE_BYTES


def _packed_bytes(block: list[RowJson]) -> int:
    return len(pack(block))


def _ids(block: list[RowJson]) -> set[int]:
    return set().union(*(row["ids"] for row in block))
