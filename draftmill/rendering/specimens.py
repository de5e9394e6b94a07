"""Conversations that a server's own tokenizer is held to, with the ids they have here.

draftmill sends ids, so a server with another tokenizer or template answers a
prompt that means something else to its model: nothing in the answer shows it.
These conversations do. They are rendered by the path every prompt takes
(`render_ids`), and chosen for what goes wrong in practice: who adds a system
turn, earlier turns, tools, scripts and digits that vocabularies cut differently,
the template's own switches, and a control token typed by a user.

A server renders with today's date, whatever the recipe pins. So do these; a
template that prints the day also has yesterday's and tomorrow's ids, since the
server's clock may be in another zone.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmill.arrays import Ids
from draftmill.rendering.template import Refused, render_ids, template_text
from draftmill.rendering.variables import own_variables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from draftmill.judging.structure import Structure

Messages = list[dict[str, Any]]

SWITCHES_SHOWN = 3
"""Variables of a template that are tried besides the recipe's: each costs a request or two a server."""

TOOLS = [
    {
        "type": "function",
        "function": {
            # Name before description: the order in which vLLM writes them, whatever it was sent.
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its name."}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]


@dataclass(frozen=True, slots=True, eq=False)
class Specimen:
    """A conversation and its ids. `renderings`: the first is today's; the others are as good."""

    name: str
    messages: Messages
    tools: list[dict[str, Any]] | None
    template_kwargs: dict[str, Any]
    renderings: tuple[Ids | Refused, ...]

    @property
    def ids(self) -> Ids | Refused:
        """Its ids as rendered today, or the template's refusal."""
        return self.renderings[0]


def specimens(
    tokenizer: PreTrainedTokenizerBase, structure: Structure, *, template_kwargs: dict[str, Any], today: dt.date
) -> tuple[Specimen, ...]:
    """Eight conversations or more, rendered. Raises RecipeError as `render_ids` does."""
    render = _Renderer(tokenizer, today)
    found = [
        render("one turn", _user("Say hello."), template_kwargs),
        render(
            "system",
            [_turn("system", "Answer in one word."), *_user("What is the capital of France?")],
            template_kwargs,
        ),
        render("several turns", _several_turns(), template_kwargs),
        render("tools", _user("How is the weather in Paris?"), template_kwargs, tools=TOOLS),
        render("CJK", _user("请用三句话介绍东京。東京タワーの高さは？ 서울은 어디에 있나요? 🗼"), template_kwargs),
        render("numbers and white space", _user("12\n\n12\t345,678.90  and   1e-9\n    x = 2026 "), template_kwargs),
        render("typed marker", _user(_typed(tokenizer, structure)), template_kwargs),
    ]
    return (*found, *_switched(render, tokenizer, template_kwargs))


class _Renderer:
    def __init__(self, tokenizer: PreTrainedTokenizerBase, today: dt.date) -> None:
        self._tokenizer = tokenizer
        dated = "strftime_now" in template_text(tokenizer)
        self._days = [today + dt.timedelta(days=days) for days in ((0, -1, 1) if dated else (0,))]

    def __call__(
        self,
        name: str,
        messages: Messages,
        template_kwargs: dict[str, Any],
        *,
        tools: list[dict[str, Any]] | None = None,
    ) -> Specimen:
        renderings = tuple(
            render_ids(self._tokenizer, messages, tools, template_kwargs=template_kwargs, date=day)
            for day in self._days
        )
        return Specimen(name, messages, tools, template_kwargs, renderings)


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _user(content: str) -> Messages:
    return [_turn("user", content)]


def _several_turns() -> Messages:
    answered = [*_user("Name a prime."), _turn("assistant", "Seven is a prime.\n\nSo is 11.")]
    return [*answered, *_user("And an even one?"), _turn("assistant", "Two."), *_user("Why only one? ")]


def _typed(tokenizer: PreTrainedTokenizerBase, structure: Structure) -> str:
    """What a user writes who asks about the model's own markers."""
    added = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items()}
    ids = (*structure.end_ids[:1], *structure.open_ids, *structure.close_ids, *structure.foreign_ids[:1])
    texts = [added[index] for index in dict.fromkeys(ids) if index in added]
    return f"What do {' and '.join(texts or ['<|im_end|>'])} mean?"


def _switched(render: _Renderer, tokenizer: PreTrainedTokenizerBase, template_kwargs: dict[str, Any]) -> list[Specimen]:
    """The template's own switches, found by trying: variables it reads that change the ids when they are set.

    A template without any is asked with one it does not read: a server must bear that too.
    """
    messages = _user("Say hello.")
    seen = {_key(render("", messages, template_kwargs))}
    found: list[Specimen] = []
    for name in own_variables(tokenizer):
        for value in (True, False):
            specimen = render(f"template_kwargs {name}={value}", messages, {**template_kwargs, name: value})
            if not isinstance(specimen.ids, Refused) and _key(specimen) not in seen:
                seen.add(_key(specimen))
                found.append(specimen)
    without = render("template_kwargs", messages, {**template_kwargs, "enable_thinking": False})
    return found[:SWITCHES_SHOWN] or [without]


def _key(specimen: Specimen) -> bytes:
    return b"" if isinstance(specimen.ids, Refused) else specimen.ids.tobytes()
