"""What an audit found, for a terminal: which rows, where in them, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from draftmill.judging.structure import structures_from_json
from draftmill.recipe_file import parse_recipe
from draftmill.rendering.tokenizer import load_tokenizer
from draftmill.reporting.cut import parts
from draftmill.reporting.interlinear import Interlinear
from draftmill.reporting.pieces import TokenPieces
from draftmill.reporting.plain_text import plain
from draftmill.reporting.row_parts import Piece

if TYPE_CHECKING:
    from draftmill.audit.audit import Audit
    from draftmill.audit.verdict import RowAudit

AROUND = 6
"""Ids shown on either side of a place: about a line."""

ROWS_SHOWN = 20
"""Suspicious rows that are shown; `--json` has all."""

PLACES_SHOWN = 3
"""Places of a row that are shown with their surroundings."""

WORDS = {
    "not_first_choice": "not the first choice of a greedy row, beyond {tolerance:g} nats",
    "outside_nucleus": "outside of what the recipe's top_p, top_k and min_p let through",
    "too_surprising": "more unlikely ids in one stretch than chance allows",
}

VERDICTS = {
    "own": "the audited rows are the served model's own, as far as log-probabilities tell",
    "suspicious": "SUSPICIOUS: some rows are not what the served model would have written",
    "undecided": "UNDECIDED: nothing speaks against the rows, but too little could be decided",
}


def audit_lines(audit: Audit, pieces: dict[str, list[Piece]]) -> Iterator[RenderableType]:
    """All of it, top to bottom. `pieces`: of the rows that are shown, by row_key."""
    suspicious = [row for row in audit.rows if row.verdict == "suspicious"]
    for row in suspicious[:ROWS_SHOWN]:
        yield from _row_lines(row, pieces.get(row.row_key, []), audit.tolerance)
        yield Text()
    if len(suspicious) > ROWS_SHOWN:
        yield Text(f"and {len(suspicious) - ROWS_SHOWN:,} more suspicious rows (--json names all)")
    for why in sorted({row.why_undecided for row in audit.rows if row.why_undecided}):
        number = sum(row.why_undecided == why for row in audit.rows)
        yield Text(f"{number:,} rows undecided: {why}")
    for each in audit.failed[:ROWS_SHOWN]:
        yield Text(f"not audited: {each.row_key[:12]}: {plain(each.words)}")
    yield from _sums(audit)
    yield Text(VERDICTS[audit.verdict], style="bold")


def row_pieces(audit: Audit) -> dict[str, list[Piece]]:
    """The pieces of the rows that `audit_lines` shows, by row_key; as they were audited, from whatever version."""
    shown = {row.row_key for row in audit.rows if row.verdict == "suspicious"}
    known = TokenPieces(load_tokenizer(parse_recipe(audit.manifest.recipe, origin="the manifest").model))
    structures = structures_from_json(audit.manifest.structures)
    found = {}
    for row in [row for row in audit.chosen if row.row_key in shown][:ROWS_SHOWN]:
        ids = row.ids_T.tolist()
        texts = [piece.text or piece.raw or None for piece in map(known.piece, ids)]
        pieces = zip(ids, parts(ids, row.spans, structures[row.variant]), texts, strict=True)
        found[row.row_key] = [Piece(*each) for each in pieces]
    return found


def _row_lines(row: RowAudit, pieces: list[Piece], tolerance: float) -> Iterator[RenderableType]:
    why = WORDS[row.doubt or ""].format(tolerance=tolerance)
    yield Text(f"row {row.row_key[:12]} ({plain(row.prompt_id)}, {row.variant})", style="bold")
    yield Text(f"  {row.wrong:,} of {row.positions:,} generated ids: {why}")
    yield Text(f"  least likely: {row.worst:.2f} nats at position {row.worst_at:,}")
    for place, behind in list(zip(row.places, row.behind, strict=True))[:PLACES_SHOWN]:
        yield Text(f"  position {place:,}: {behind:.2f} nats behind the first choice", style="dim")
        if pieces:
            start, end = max(0, place - AROUND), min(len(pieces), place + AROUND + 1)
            yield Interlinear(pieces[start:end], marked=[place - start], before=start > 0, after=end < len(pieces))
    if row.wrong > PLACES_SHOWN:
        yield Text(f"  and {row.wrong - PLACES_SHOWN:,} more")


def _sums(audit: Audit) -> Iterator[Text]:
    sums = audit.to_json()
    rows, positions = sums["rows"], sums["positions"]
    yield Text(
        f"manifest {audit.manifest.version}: {len(audit.rows):,} of {rows['chosen']:,} chosen rows audited: "
        f"{rows['own']:,} own, {rows['suspicious']:,} suspicious, {rows['undecided']:,} undecided"
    )
    yield Text(
        f"{positions['positions']:,} generated ids: {positions['wrong']:,} wrong, "
        f"{positions['undecided']:,} undecided; {positions['not_first']:,} not the first choice, "
        f"{positions['near_ties']:,} of them by at most {audit.tolerance:g} nats"
    )
    if positions["unscored"]:
        yield Text(f"{positions['unscored']:,} generated ids beyond what the server takes as a prompt were not scored")
    if audit.stopped:
        yield Text(f"stopped before all rows were asked: {plain(audit.stopped)}", style="bold red")
