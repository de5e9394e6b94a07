"""What a template does, found by rendering small conversations and comparing ids.

Tokenizer and template in, a `Probe` out: the ids the shelf of structures decides
by. Nothing is read out of rendered text. A place in a conversation is found by
rendering it twice with another content: what the two share at the end stands
behind the content, whatever the tokenizer merged around it.

Probes are rendered at fixed days, so that a structure does not change with the
date; whether the prompt does is one of the findings (`depends_on_date`).
Refuses a template that does not even take one user message.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmill.errors import RecipeError
from draftmill.rendering.template import Refused, render_ids, template_text
from draftmill.rendering.tokenizer import highest_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBE_DAYS = (dt.date(2001, 2, 3), dt.date(2019, 11, 28))
"""Two days that differ in every part a template can print: year, month, day, weekday."""

CONTENTS = ("7", "4")
"""Two contents without a common id, which no tokenizer merges into one."""

TAIL_SHOWN = 16
"""Ids of a prompt's end that are shown when the template adds nothing of its own."""

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Probe:
    """Evidence on ids.

    `prompt_ids`: one user message with the generation prompt. `tail_ids`: what
    the generation prompt adds (all behind the user's content when it adds
    nothing). `answer_end_ids`: what follows an assistant's content, from its
    first marker on; empty when no marker does. `assistant_ids`: everything the
    template writes around assistant turns, with and without reasoning.
    `marker_ids`: added tokens seen in any probe. `end_ids`: what the caller
    knows to end a turn, beside `eos_id`.
    """

    tokenizer: PreTrainedTokenizerBase
    template: str
    added: dict[int, str]
    prompt_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    answer_end_ids: tuple[int, ...]
    assistant_ids: tuple[tuple[int, ...], ...]
    marker_ids: frozenset[int]
    blank_ids: tuple[int, ...]
    bos_id: int | None
    eos_id: int | None
    end_ids: tuple[int, ...]
    highest_id: int
    keeps_history_reasoning: bool
    depends_on_date: bool
    evidence: tuple[str, ...]

    def text(self, ids: Iterable[int]) -> str:
        """Ids as text, for people."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def ids_of(self, text: str) -> tuple[int, ...]:
        """A marker's ids: one when the tokenizer has it as a token, else several."""
        known = next((index for index, token in self.added.items() if token == text), None)
        if known is not None:
            return (known,)
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))


def probe_template(
    tokenizer: PreTrainedTokenizerBase, *, template_kwargs: dict[str, Any], end_ids: Sequence[int] = ()
) -> Probe:
    """Renders the probes. Raises RecipeError when the template does not take one user message."""
    render = _Renderer(tokenizer, template_kwargs)
    added = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items()}
    blank = blank_ids(tokenizer)
    prompt = render.required(_user(CONTENTS[0]))
    tail = render.tail(prompt)
    last = [render(_user("2") + _assistant(content), speak=False) for content in CONTENTS]
    inner = [render(_user("2") + _assistant(content) + _user("5"), speak=False) for content in CONTENTS]
    reasoned = [render(_user("2") + _assistant("7", reasoning=text), speak=False) for text in CONTENTS]
    others = [
        render(_system("3") + _user("2")),
        render(_system("3") + _user("2") + _assistant("7") + _user("5")),
    ]
    rendered = [prompt, *(ids for ids in (*last, *inner, *reasoned, *others) if ids is not None)]
    markers = frozenset().union(*rendered) & added.keys() - set(blank)
    return Probe(
        tokenizer=tokenizer,
        template=template_text(tokenizer),
        added=added,
        prompt_ids=prompt,
        tail_ids=tail,
        answer_end_ids=_answer_end(last, inner, markers, frozenset(blank)),
        assistant_ids=tuple(ids for ids in (*last, *inner, *reasoned) if ids is not None),
        marker_ids=markers,
        blank_ids=blank,
        bos_id=tokenizer.bos_token_id,
        eos_id=tokenizer.eos_token_id,
        end_ids=tuple(end_ids),
        highest_id=highest_id(tokenizer),
        keeps_history_reasoning=_keeps_history(render, template_text(tokenizer)),
        depends_on_date=prompt != render(_user(CONTENTS[0]), day=PROBE_DAYS[1]),
        evidence=tuple(render.refusals),
    )


def blank_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Ids that are white space and nothing else, sorted."""
    return tuple(sorted(index for token, index in tokenizer.get_vocab().items() if _is_blank(tokenizer, token, index)))


def _is_blank(tokenizer: PreTrainedTokenizerBase, token: str, index: int) -> bool:
    if not token.startswith("<0x") and any(character.isascii() and character.isalnum() for character in token):
        return False  # spares decoding nearly all of the vocabulary
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
        self, messages: Messages, *, speak: bool = True, day: dt.date = PROBE_DAYS[0]
    ) -> tuple[int, ...] | None:
        ids = render_ids(
            self._tokenizer, messages, None, template_kwargs=self._kwargs, date=day, add_generation_prompt=speak
        )
        if isinstance(ids, Refused):
            roles = " ".join(message["role"] for message in messages)
            self.refusals.append(f"the template does not take the roles [{roles}]: {ids.words}")
            return None
        return tuple(ids.tolist())

    def required(self, messages: Messages) -> tuple[int, ...]:
        ids = self(messages)
        if ids:
            return ids
        raise RecipeError(
            "the chat template does not take a user message",
            value=self.refusals[-1] if self.refusals else "it renders nothing",
            expected="a prompt for one user message with text content",
            remedy="give a template for text with model.chat_template, or what it needs in model.template_kwargs",
        )

    def tail(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """What the generation prompt adds; when nothing, what stands behind the user's content."""
        bare = self(_user(CONTENTS[0]), speak=False) or ()
        added = prompt[_common(prompt, bare) :]
        return added or _shared_end(prompt, self(_user(CONTENTS[1])) or ())


def _user(content: str) -> Messages:
    return [{"role": "user", "content": content}]


def _system(content: str) -> Messages:
    return [{"role": "system", "content": content}]


def _assistant(content: str, *, reasoning: str | None = None) -> Messages:
    return [{"role": "assistant", "content": content, **({"reasoning_content": reasoning} if reasoning else {})}]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _shared_end(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return a[len(a) - _common(a[::-1], b[::-1]) :]


Rendered = Sequence[tuple[int, ...] | None]


def _answer_end(last: Rendered, inner: Rendered, markers: frozenset[int], blank: frozenset[int]) -> tuple[int, ...]:
    """What follows an assistant's content, from its first marker on.

    Some templates end a turn only by the next one's marker, which then stands
    right behind the content.
    """
    ends = [_behind_content(pair) for pair in (last, inner)]
    for index, item in enumerate(ends[0]):
        if item in markers:
            return ends[0][index:]
    first = next((index for index, item in enumerate(ends[1]) if item not in blank), None)
    return ends[1][first:] if first is not None and ends[1][first] in markers else ()


def _behind_content(pair: Rendered) -> tuple[int, ...]:
    first, second = pair
    # Equal ids: the template does not print the content at all, so nothing stands behind it.
    return () if first is None or second is None or first == second else _shared_end(first, second)


def _keeps_history(render: _Renderer, template: str) -> bool:
    """Whether an earlier turn's reasoning is still in a later prompt: two reasonings, and do the ids differ?"""
    if "reasoning" in template:  # it reads the reasoning from a field of its own
        turns = [_assistant("7", reasoning=text) for text in CONTENTS]
    else:
        turns = [_assistant(f"<think>\n{text}\n</think>\n\n7") for text in CONTENTS]
    first, second = (render(_user("2") + turn + _user("5")) for turn in turns)
    return first is not None and second is not None and first != second
