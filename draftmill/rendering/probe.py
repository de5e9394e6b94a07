"""What a template does, found by rendering small conversations and comparing ids.

Tokenizer and template in, a `Probe` out: the ids the shelf of structures decides
by. Nothing is read out of rendered text. How an assistant's turn is written, with
reasoning, without, and with tool calls, is `assistant_turns`' business; what the template's
own switches do is `switches`'.

Probes are rendered at fixed days, so that a structure does not change with the
date; whether the prompt does is one of the findings (`depends_on_date`).
Refuses a template that does not even take one user message.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from draftmill.errors import RecipeError
from draftmill.judging.structure import Form, Marker
from draftmill.rendering.assistant_turns import Turns, common, read_turns, reasoning_is_kept, shared_end
from draftmill.rendering.marker_forms import marker_forms
from draftmill.rendering.probe_messages import CONTENTS, TOOLS, Messages, assistant, in_parts, system, user
from draftmill.rendering.switches import Switch, speaking_variables
from draftmill.rendering.template import Refused, render_ids, template_text
from draftmill.rendering.tokenizer import highest_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE_DAYS = (dt.date(2001, 2, 3), dt.date(2019, 11, 28))
"""Two days that differ in every part a template can print: year, month, day, weekday."""

TAIL_SHOWN = 16
"""Ids of a prompt's end that are shown when the template adds nothing of its own."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Evidence on ids.

    `prompt_ids`: one user message with the generation prompt. `tail_ids`: what
    the generation prompt adds (all behind the user's content when it adds
    nothing). `turns`: how an assistant's turn is written. `switches`: the same
    prompt with each of the template's own variables for thinking at each value.
    `end_ids`: what the caller knows to end a turn, beside `eos_id`.
    `depends_on_date`: the prompt differs at two days. `evidence`: what the
    template refused.
    """

    tokenizer: PreTrainedTokenizerBase
    template: str
    template_kwargs: dict[str, Any]
    added: dict[int, str]
    prompt_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    turns: Turns
    switches: tuple[Switch, ...]
    blank_ids: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    end_ids: tuple[int, ...]
    highest_id: int
    depends_on_date: bool
    evidence: tuple[str, ...]

    def text(self, ids: Iterable[int]) -> str:
        """Ids as text, for people."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def ids_of(self, text: str) -> Marker:
        """The ids of a text that stands between two markers."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def forms_of(self, text: str) -> tuple[Form, ...]:
        """A marker's ids: one form of one id where the tokenizer has it as a token, else all that read as it."""
        return marker_forms(self.tokenizer, text)

    def keeps_reasoning(self, opening: str, closing: str) -> bool:
        """Whether an earlier turn's reasoning, marked with these texts, is still in a later prompt."""
        return reasoning_is_kept(_Renderer(self.tokenizer, self.template_kwargs), opening, closing)

    def switched(self, switch: Switch) -> Probe:
        """The same evidence with the prompt that the switch gives, and no further switch."""
        return replace(self, prompt_ids=switch.prompt_ids, tail_ids=switch.tail_ids, switches=())


def probe_template(
    tokenizer: PreTrainedTokenizerBase, *, template_kwargs: dict[str, Any], end_ids: Sequence[int] = ()
) -> Probe:
    """Renders the probes. Raises RecipeError when the template does not take one user message."""
    render = _Renderer(tokenizer, template_kwargs)
    added = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items()}
    blank = blank_ids(tokenizer)
    blanks = frozenset(blank)
    prompt = render.required(user(CONTENTS[0]))
    tail = render.tail(prompt)
    eos = tokenizer.eos_token_id
    turns = read_turns(
        render,
        tail=tail,
        markers={index: text for index, text in added.items() if index not in blanks},
        blanks=blanks,
        known_ends=frozenset({*end_ids, *(() if eos is None else (eos,))}),
    )
    return Probe(
        tokenizer=tokenizer,
        template=template_text(tokenizer),
        template_kwargs=template_kwargs,
        added=added,
        prompt_ids=prompt,
        tail_ids=tail,
        turns=turns,
        switches=tuple(_switches(tokenizer, template_kwargs)),
        blank_ids=blank,
        bos_id=tokenizer.bos_token_id,
        eos_id=eos,
        end_ids=tuple(end_ids),
        highest_id=highest_id(tokenizer),
        depends_on_date=_depends_on_date(render, template_text(tokenizer)),
        evidence=tuple(dict.fromkeys(render.refusals)),
    )


def blank_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Ids that are white space and nothing else, sorted."""
    speaks = re.compile("[0-9A-Za-z]").search  # spares decoding nearly all of the vocabulary
    silent = [item for item in tokenizer.get_vocab().items() if not speaks(item[0]) or item[0].startswith("<0x")]
    return tuple(sorted(index for token, index in silent if _is_blank(tokenizer, token, index)))


def _is_blank(tokenizer: PreTrainedTokenizerBase, token: str, index: int) -> bool:
    # SentencePiece drops the space of a lone piece when it decodes.
    text = str(tokenizer.decode([index], skip_special_tokens=False)) or token.replace("\u2581", " ")
    return text != "" and not text.strip()


class _Renderer:
    """Renders probes at fixed days and keeps what the template refused."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: dict[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._kwargs = template_kwargs
        self.refusals: list[str] = []

    def __call__(
        self,
        messages: Messages,
        *,
        speak: bool = True,
        tools: list[dict[str, Any]] | None = None,
        day: dt.date = PROBE_DAYS[0],
    ) -> tuple[int, ...] | None:
        ids = render_ids(
            self._tokenizer, messages, tools, template_kwargs=self._kwargs, date=day, add_generation_prompt=speak
        )
        if isinstance(ids, Refused):
            if not tools and all(isinstance(message["content"], str) for message in messages):
                roles = " ".join(message["role"] for message in messages)
                self.refusals.append(f"the template does not take the roles [{roles}]: {ids.words}")
            return None
        return tuple(ids.tolist())

    def required(self, messages: Messages) -> tuple[int, ...]:
        ids = self(messages)
        if ids:
            return ids
        refused = self.refusals[-1] if self.refusals else "it renders nothing"
        remedy = "give a template for text with model.chat_template, or what it needs in model.template_kwargs"
        if self(in_parts(messages)):
            remedy = "this template takes content as a list of parts only: give one for text with model.chat_template"
        raise RecipeError(
            "the chat template does not take a user message",
            value=refused,
            expected="a prompt for one user message with text content",
            remedy=remedy,
        )

    def tail(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """What the generation prompt adds; when nothing, what stands behind the user's content."""
        bare = self(user(CONTENTS[0]), speak=False) or ()
        added = prompt[common(prompt, bare) :]
        return added or shared_end(prompt, self(user(CONTENTS[1])) or ())


def _switches(tokenizer: PreTrainedTokenizerBase, template_kwargs: dict[str, Any]) -> Iterable[Switch]:
    for name, values in speaking_variables(tokenizer.get_chat_template(None, None)).items():
        for value in values:
            render = _Renderer(tokenizer, {**template_kwargs, name: value})
            prompt = render(user(CONTENTS[0]))
            if prompt:
                yield Switch(name, value, prompt, render.tail(prompt))


def _depends_on_date(render: _Renderer, template: str) -> bool:
    """Two days, and do the ids differ? Some templates print the day in any system turn, or only with tools."""
    if "strftime_now" not in template:  # the only clock a template is given
        return False
    asked = user(CONTENTS[0])
    conversations = (asked, system("3") + asked, asked + assistant(CONTENTS[1]) + user("5"))
    return any(
        render(messages, tools=tools, day=PROBE_DAYS[0]) != render(messages, tools=tools, day=PROBE_DAYS[1])
        for messages in conversations
        for tools in (None, TOOLS)
    )
