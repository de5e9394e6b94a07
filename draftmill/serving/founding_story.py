"""The founding case in words, tables and coloured ids.

Every number and id printed is taken from the exchange it tells of; only the
sentences around them are written here. At most 100 columns, fewer on a narrower
terminal; plain text when it is not a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from draftmill.records import OF_AN_ANSWER
from draftmill.reporting.interlinear import Interlinear
from draftmill.reporting.plain_text import plain
from draftmill.serving import retokenized
from draftmill.serving.corruptions import END_OF_TURN, END_THINK, THINK, Corruption
from draftmill.serving.founding_exchange import Exchange
from draftmill.serving.founding_tables import fields, legend, losses_table, pieces, spoiled_table, times
from draftmill.serving.kimi_case import QUESTION, FoundingCase

WIDEST = 100
"""Columns: longer lines are hard to read, and not every terminal has them."""

TAIL_SHOWN = 5
"""Ids of the prompt shown before the answer: from `<|im_assistant|>` on."""

Spoiled = tuple[Corruption, Exchange]


class Story:
    """Prints one part of the story a call, in the order of the methods."""

    def __init__(self, case: FoundingCase, console: Console | None = None) -> None:
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
        self._show(Interlinear(pieces(case, case.prompt_ids)))

    def by_text(self) -> None:
        """Text back, tokenized again: each way in which that is not what the model produced."""
        case, tokenizer = self._case, self._case.tokenizer
        answer = retokenized.parsed(tokenizer, case.reasoning_ids, case.content_ids)
        losses = text_losses(case)
        num_ids, kindest = len(case.output_ids), losses[0]
        self._chapter("2  Through a chat API: text")
        self._say("The server's reasoning parser makes two texts of the answer, and a trainer tokenizes them again.")
        self._show(fields(("reasoning_content", plain(answer.reasoning)), ("content", plain(answer.content))))
        self._say(f"The model produced {num_ids} ids. What its text gives, and what each step loses more:")
        self._show(losses_table(tokenizer, losses, num_ids))
        self._say(
            f"Complete text, every marker put back by hand: still {kindest.num_wrong} of {num_ids} ids are not the "
            "model's, which spelled strawberry in pieces; the tokenizer never would. A parser strips white space and "
            f"both markers; a server without a field for the reasoning leaves it null: {len(case.reasoning_ids)} ids "
            "are missing altogether. Kimi-K2.5's own template, given reasoning_content, drops it from the last turn "
            f"as from earlier ones: {num_ids - losses[-1].num_wrong} ids of {num_ids} are right."
        )
        self._say("A drafter trained on any of these learns another model.")

    def by_ids(self, exchange: Exchange) -> None:
        """The row as it is stored: prompt and output, to the id."""
        case, verdict, ids = self._case, exchange.verdict, exchange.ids
        prompt_len = len(case.prompt_ids)
        self._chapter("3  By ids: the training sequence")
        self._say(
            f"Ids sent to /generate, ids taken back: {prompt_len} of the prompt, {len(case.reasoning_ids)} of "
            f"reasoning, {END_THINK} </think>, {len(case.content_ids)} of content, {END_OF_TURN} <|im_end|>."
        )
        self._show(legend())
        self._show(Interlinear(pieces(case, ids)[prompt_len - TAIL_SHOWN :], before=True))
        self._show(
            fields(
                ("verdict", _verdict(exchange)),
                ("prompt_len", f"{prompt_len}: input_ids[{prompt_len - 1}] is {ids[prompt_len - 1]} <think>"),
                (
                    "reasoning_end",
                    f"{verdict.reasoning_end}: input_ids[{verdict.reasoning_end}] is {END_THINK} </think>",
                ),
                ("stop_id", f"{verdict.stop_id} <|im_end|>"),
            )
        )

    def spoiling(self) -> None:
        """What the next parts have in common."""
        self._chapter("4  The same server, spoiling the answer")
        self._say(
            "One good answer, and every way to spoil it that servers were seen to have or models fall into. On the "
            "left the name that the judge gives it, in the order of precedence; in brackets the id it stumbled over."
        )

    def spoiled(self, title: str, spoiled: Sequence[Spoiled]) -> None:
        """A group of corruptions: what the judge says to each, and the ids around the place it names."""
        self._say(Text(title, style="bold"))
        self._out.print(Padding(spoiled_table(spoiled), (0, 0, 0, 2), expand=False))

    def recovered(self, exchange: Exchange) -> None:
        """An abort that does not last."""
        self._chapter("5  And an abort that passes")
        same = tuple(exchange.output_ids) == self._case.output_ids
        self._say(
            Text.assemble(
                "The first answer is aborted half-way, the second is whole. ",
                f"Asked {times(exchange.requests)}; verdict ",
                _verdict(exchange),
                f"; its ids are {'those of chapter 3' if same else 'others than those of chapter 3'}.",
            )
        )

    def end(self, spoiled: Sequence[Spoiled]) -> None:
        """The count."""
        named = {corruption.code for corruption, exchange in spoiled if is_named(corruption, exchange)}
        missed = [corruption.title for corruption, exchange in spoiled if not is_named(corruption, exchange)]
        codes = f"{len(named)} of {len(OF_AN_ANSWER)} codes"
        if missed:
            self._say(Text(f"{codes}; not found by its name: the server that {'; '.join(missed)}.", style="bold red"))
        else:
            words = f"{codes}: each of the {len(spoiled)} spoiled answers found by its name."
            self._say(Text(f"{words} In a run they lie in quarantine, none in a shard.", style="bold"))

    def _chapter(self, title: str) -> None:
        self._out.print(Rule(Text(title, style="bold"), align="left", style="dim", characters="-"))
        self._out.print()

    def _say(self, words: str | Text) -> None:
        self._out.print(words)
        self._out.print()

    def _show(self, what: RenderableType) -> None:
        self._out.print(Padding(what, (0, 0, 0, 2), expand=False))
        self._out.print()


def is_named(corruption: Corruption, exchange: Exchange) -> bool:
    """Whether the judge gave the spoiled answer the name of what was done to it."""
    return exchange.verdict.reason is corruption.code


def text_losses(case: FoundingCase) -> list[retokenized.Loss]:
    """What text makes of the case's answer; the template is asked for it as the last turn and as an earlier one."""
    answer = retokenized.parsed(case.tokenizer, case.reasoning_ids, case.content_ids)
    asked = {"role": "user", "content": QUESTION}
    turn = {"role": "assistant", "content": answer.content, "reasoning_content": answer.reasoning}
    produced = retokenized.Produced(case.reasoning_ids, END_THINK, case.content_ids, END_OF_TURN)
    rendered = {
        "rendered, last turn": _turn(case, [asked, turn]),
        "rendered, earlier turn": _turn(case, [asked, turn, {"role": "user", "content": "Are you sure?"}]),
    }
    return retokenized.losses(case.tokenizer, produced, rendered=rendered)


def _turn(case: FoundingCase, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
    """The ids that stand behind the question's prompt, up to the end of that turn."""
    behind = case.rendered(messages, add_generation_prompt=False)[len(case.prompt_ids) :]
    return behind[: behind.index(END_OF_TURN) + 1]


def _verdict(exchange: Exchange) -> Text:
    reason = exchange.verdict.reason
    return Text("ok", style="bold green") if reason is None else Text(str(reason), style="bold red")
