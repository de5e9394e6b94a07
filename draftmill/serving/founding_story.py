"""The founding case in words, tables and coloured ids.

Every number and id printed is taken from the exchange it tells of; only the
sentences around them are written here. At most 100 columns, fewer on a narrower
terminal; plain text when it is not a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from draftmill.reporting.interlinear import Interlinear, shown
from draftmill.reporting.plain_text import plain
from draftmill.reporting.row_parts import STYLES, Part, Piece
from draftmill.serving import retokenized
from draftmill.serving.kimi_case import END_OF_TURN, END_THINK, QUESTION, THINK, Corruption, Exchange, KimiCase

WIDEST = 100
"""Columns: longer lines are hard to read, and not every terminal has them."""

BEFORE, AFTER = 3, 4
"""Ids shown on either side of the place a verdict names."""

TAIL_SHOWN = 5
"""Ids of the prompt shown before the answer: from `<|im_assistant|>` on."""


class Story:
    """Prints one part of the story a call, in the order of the methods."""

    def __init__(self, case: KimiCase, console: Console | None = None) -> None:
        self._case = case
        self._out = console or Console(highlight=False, markup=False, emoji=False)
        self._out.width = min(self._out.width, WIDEST)

    def question(self) -> None:
        """The prompt, and who opens the reasoning."""
        case = self._case
        self._say(Text("Why draftmill keeps ids: the founding case", style="bold"))
        self._say(
            "Kimi-K2.5's own chat template and marker ids over SmolLM2's vocabulary; a fake SGLang server "
            "that answers by script; draftmill's own renderer, client and judge. Everything below is computed now."
        )
        self._chapter("1  The question")
        self._say(
            f'"{QUESTION}", rendered by the template: {len(case.prompt_ids)} ids. The last one is {THINK}, <think>: '
            "the template opens the reasoning, so the model never generates that marker."
        )
        self._show(Interlinear(self._pieces(case.prompt_ids, self._prompt_parts())))

    def through_a_chat_api(self) -> None:
        """Text back, tokenized again, and where that is not what the model produced."""
        case, tokenizer = self._case, self._case.tokenizer
        answer = retokenized.parsed(tokenizer, case.reasoning_ids, case.content_ids)
        bare = retokenized.again(tokenizer, answer)
        differences = retokenized.differences(case.output_ids, bare)
        mended = retokenized.again(tokenizer, answer, close=[END_THINK], end=[END_OF_TURN])
        num_ids, num_mended = len(case.output_ids), len(mended)
        lost = sum(len(d.produced) for d in retokenized.differences(case.output_ids, mended))
        self._chapter("2  Through a chat API: text")
        self._say(
            "The server's reasoning parser makes two texts of the answer (of the first, some servers make null), "
            "and a trainer tokenizes them again."
        )
        self._show(_fields(("reasoning_content", plain(answer.reasoning)), ("content", plain(answer.content))))
        self._say(
            f"The model produced {num_ids} ids; its text gives {len(bare)}. They differ in {len(differences)} places:"
        )
        self._show(self._differences(differences))
        self._say(
            f"Even with both markers put back by hand, {lost} of the model's {num_ids} ids are not what it produced, "
            f"and {num_mended} ids stand for {num_ids}: the model spelled strawberry in pieces, the tokenizer never "
            "would. A drafter trained on the right column learns another model."
        )

    def by_ids(self, exchange: Exchange) -> None:
        """The row as it is stored: prompt and output, to the id."""
        case, verdict = self._case, exchange.verdict
        prompt_len = len(case.prompt_ids)
        self._chapter("3  By ids: the training sequence")
        self._say(
            f"Ids sent to /generate, ids taken back: {prompt_len} of the prompt, {len(case.reasoning_ids)} of "
            f"reasoning, {END_THINK} </think>, {len(case.content_ids)} of content, {END_OF_TURN} <|im_end|>."
        )
        self._show(_legend())
        ids, first = _row_ids(exchange), prompt_len - TAIL_SHOWN
        self._show(Interlinear(self._pieces(ids, self._parts(exchange))[first:], before=True))
        self._show(
            _fields(
                ("verdict", _verdict(exchange)),
                ("prompt_len", f"{prompt_len}: input_ids[{prompt_len - 1}] is {ids[prompt_len - 1]} <think>"),
                (
                    "reasoning_end",
                    f"{verdict.reasoning_end}: input_ids[{verdict.reasoning_end}] is {END_THINK} </think>",
                ),
                ("stop_id", f"{verdict.stop_id} <|im_end|>"),
            )
        )
        self._chapter("4  The same server, spoiling the answer")

    def spoiled(self, number: int, corruption: Corruption, exchange: Exchange) -> None:
        """One corruption: what the judge says, and the ids around the place it names."""
        self._say(Text(f"4.{number}  It {corruption.title}", style="bold"))
        self._out.print(Padding(corruption.harm, (0, 0, 0, 2), expand=False))
        self._show(_fields(("verdict", _verdict(exchange)), ("asked", _times(exchange.requests))))
        ids, position = _row_ids(exchange), exchange.verdict.position
        at = len(ids) - 1 if position is None else position
        first, last = max(0, at - BEFORE), min(len(ids), at + AFTER + 1)
        pieces = self._pieces(ids, self._parts(exchange))[first:last]
        marked = None if position is None else at - first
        self._show(Interlinear(pieces, marked=marked, before=first > 0, after=last < len(ids)))

    def recovered(self, exchange: Exchange) -> None:
        """An abort that does not last."""
        self._chapter("5  And an abort that passes")
        same = tuple(exchange.completion.answer.output_ids.tolist()) == self._case.output_ids
        self._say(
            Text.assemble(
                "The first answer is aborted half-way, the second is whole. ",
                f"Asked {_times(exchange.requests)}; verdict ",
                _verdict(exchange),
                f"; its ids are {'those of chapter 3' if same else 'others than those of chapter 3'}.",
            )
        )

    def end(self, exchanges: Sequence[Exchange]) -> None:
        """The count."""
        found = sum(exchange.verdict.reason is not None for exchange in exchanges)
        words = f"{found} of {len(exchanges)} spoiled answers found"
        missed = len(exchanges) - found
        self._say(
            Text(f"{words}, {missed} taken for good.", style="bold red")
            if missed
            else Text(f"{words}: in a run they lie in quarantine under these codes, none in a shard.", style="bold")
        )

    def _pieces(self, ids: Sequence[int], parts: Sequence[Part]) -> list[Piece]:
        texts = [str(self._case.tokenizer.decode([index])) for index in ids]
        return [Piece(*piece) for piece in zip(ids, parts, texts, strict=True)]

    def _prompt_parts(self) -> list[Part]:
        return [Part.MARKER if index == THINK else Part.PROMPT for index in self._case.prompt_ids]

    def _parts(self, exchange: Exchange) -> list[Part]:
        """What each id is, as far as its markers tell: content is what stands behind `</think>`."""
        parts, inside = self._prompt_parts(), Part.REASONING
        for index in exchange.completion.answer.output_ids.tolist():
            if index in self._case.structure.end_ids:
                parts.append(Part.END)
            elif index in (THINK, END_THINK):
                parts.append(Part.MARKER)
                inside = Part.CONTENT if index == END_THINK else inside
            else:
                parts.append(inside)
        return parts

    def _differences(self, differences: Iterable[retokenized.Difference]) -> Table:
        table = Table(
            "output id", "the model produced", "tokenized again", box=None, pad_edge=False, padding=(0, 3, 0, 0)
        )
        for difference in differences:
            table.add_row(str(difference.at), self._inline(difference.produced), self._inline(difference.again))
        return table

    def _inline(self, ids: Sequence[int]) -> Text:
        if not ids:
            return Text("nothing", style="bold red")
        text = Text()
        for index in ids:
            text.append(f"{index} ").append(shown(str(self._case.tokenizer.decode([index]))), style="cyan").append("  ")
        return text

    def _chapter(self, title: str) -> None:
        self._out.print(Rule(Text(title, style="bold"), align="left", style="dim", characters="-"))
        self._out.print()

    def _say(self, words: str | Text) -> None:
        self._out.print(words)
        self._out.print()

    def _show(self, what: RenderableType) -> None:
        self._out.print(Padding(what, (0, 0, 0, 2), expand=False))
        self._out.print()


def _row_ids(exchange: Exchange) -> list[int]:
    completion = exchange.completion
    return [*completion.row.prompt_ids.tolist(), *completion.answer.output_ids.tolist()]


def _verdict(exchange: Exchange) -> Text:
    verdict, prompt_len = exchange.verdict, len(exchange.completion.row.prompt_ids)
    if verdict.reason is None:
        return Text("ok", style="bold green")
    num_output = len(exchange.completion.answer.output_ids)
    place = f" at {verdict.position}" if verdict.position is not None else ""
    within = f"output id {verdict.position - prompt_len} of {num_output}" if verdict.position is not None else ""
    return Text.assemble((str(verdict.reason), "bold red"), f"{place}  ({within or verdict.detail})")


def _times(requests: int) -> str:
    return {1: "once", 2: "twice"}.get(requests, f"{requests} times")


def _fields(*fields: tuple[str, str | Text]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in fields:
        table.add_row(Text(name, style="bold"), value)
    return table


def _legend() -> Text:
    text = Text()
    for part in Part:
        text.append(part.value, style=STYLES[part]).append("  ")
    return text
