"""The founding case's tables: what text loses, and what became of each spoiled answer.

Ids stand over or beside their text, coloured by what they are. Nothing is
decided here: differences and verdicts come in, renderables go out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from draftmill.reporting.interlinear import Interlinear, shown
from draftmill.reporting.row_parts import STYLES, Part, Piece
from draftmill.serving.corruptions import Corruption
from draftmill.serving.founding_exchange import Exchange
from draftmill.serving.kimi_case import FoundingCase
from draftmill.serving.retokenized import Loss

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BEFORE, AFTER = 2, 2
"""Ids shown on either side of the place a verdict names."""

LONGEST_SHOWN, FIRST_SHOWN = 3, 2
"""Ids of a difference that are shown one by one; of a longer one, the first."""

CODE_COLUMNS = 22
"""As wide as the longest code, and a gap."""


def pieces(case: FoundingCase, ids: Sequence[int]) -> list[Piece]:
    """A row's ids with what each is, as far as its markers tell: content is what stands behind `</think>`."""
    markers, num_prompt = case.markers, len(case.prompt_ids)
    found, inside = [], Part.REASONING
    for at, index in enumerate(ids):
        part = Part.PROMPT if at < num_prompt else inside
        if index in (markers.open_id, markers.close_id):
            part = Part.MARKER
        elif index in case.structure.end_ids and at >= num_prompt:
            part = Part.END
        if index == markers.close_id:
            inside = Part.CONTENT
        found.append(Piece(index, part, str(case.tokenizer.decode([index]))))
    return found


def legend() -> Text:
    """The parts' names in their colours."""
    text = Text()
    for part in Part:
        text.append(part.value, style=STYLES[part]).append("  ")
    return text


def fields(*named: tuple[str, str | Text]) -> Table:
    """Names and values, one a line."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in named:
        table.add_row(Text(name, style="bold"), value)
    return table


def losses_table(tokenizer: PreTrainedTokenizerBase, losses: Iterable[Loss], num_ids: int) -> Table:
    """Each way: what it changes more than the one before, how many ids it gives, how many of the model's are wrong."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("way", "the model produced", "its text gives"):
        table.add_column(name, vertical="top")
    table.add_column("ids", justify="right")
    table.add_column(f"wrong of {num_ids}", justify="right")
    for loss in losses:
        lines = [(_inline(tokenizer, one.produced), _inline(tokenizer, one.again)) for one in loss.more]
        (produced, again), *rest = lines or [(Text("as above", style="dim"), Text("as above", style="dim"))]
        table.add_row(Text(loss.name, style="bold"), produced, again, str(len(loss.ids)), str(loss.num_wrong))
        for produced, again in rest:
            table.add_row("", produced, again, "", "")
    return table


def _inline(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> Text:
    if not ids:
        return Text("nothing", style="bold red")
    text = Text()
    for index in ids if len(ids) <= LONGEST_SHOWN else ids[:FIRST_SHOWN]:
        text.append(f"{index} ").append(shown(str(tokenizer.decode([index]))), style="cyan").append("  ")
    if len(ids) > LONGEST_SHOWN:
        text.append(f"... {len(ids)} ids")
    text.rstrip()
    return text


def spoiled_table(spoiled: Iterable[tuple[Corruption, Exchange]]) -> Table:
    """Each corruption: its code and place; what the server did, the harm, and the ids around the place."""
    table = Table.grid()
    table.add_column(width=CODE_COLUMNS)
    table.add_column()
    for corruption, exchange in spoiled:
        asked = f" Asked {times(exchange.requests)}." if exchange.requests > 1 else ""
        done, harm = Text(f"It {corruption.title}.{asked}"), Text(corruption.harm, style="italic")
        table.add_row(_code(exchange), Group(done, harm, _where(exchange), Text()))
    return table


def times(requests: int) -> str:
    """As one says it."""
    return {1: "once", 2: "twice"}.get(requests, f"{requests} times")


def _code(exchange: Exchange) -> Text:
    verdict = exchange.verdict
    if verdict.reason is None:
        return Text("ok", style="bold green")
    text = Text(str(verdict.reason), style="bold red")
    if verdict.position is not None:
        at = verdict.position - len(exchange.case.prompt_ids)
        text.append(f"\noutput id {at} of {len(exchange.output_ids)}", style="not bold dim")
    return text


def _where(exchange: Exchange) -> RenderableType:
    ids, position = exchange.ids, exchange.verdict.position
    if position is None:
        return Text(exchange.verdict.detail or f"{len(exchange.output_ids)} ids came", style="dim")
    first, last = max(0, position - BEFORE), min(len(ids), position + AFTER + 1)
    around = pieces(exchange.case, ids)[first:last]
    return Interlinear(around, marked=[position - first], before=first > 0, after=last < len(ids))
