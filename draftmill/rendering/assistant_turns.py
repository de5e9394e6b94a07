"""How a template writes an assistant's turn: what ends it, what stands inside, what stands around.

Rendered conversations in, as ids; sets of marker ids out. A place is found by
rendering twice with another content: what both share at the end stands behind
the content. A turn with tool calls is written with one call and with two: what
closes a call comes twice, what ends the turn only once.

Some templates write nothing behind an answer and end it by the next turn's
marker; where a conversation goes on with a tool's result that is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from draftmill.rendering.probe_messages import (
    CALL_FORMS,
    CONTENTS,
    TOOLS,
    CallForm,
    Messages,
    assistant,
    assistant_calling,
    assistant_in_parts,
    system,
    tool_result,
    user,
)

Ids = tuple[int, ...]
Render = Callable[..., Ids | None]
"""`render(messages, *, speak: bool, tools: ...)`: ids, or None for what the template does not take."""

BESIDE = 8
"""Ids looked at for markers on each side of a system's words, and at a prompt's start."""


@dataclass(frozen=True, slots=True)
class Turns:
    """`silent`, `reasoned`: an assistant's last turn without and with reasoning, from where the prompt's tail ends.

    Empty where the template has none. `end_ids`: every marker that ends a turn.
    `around`: markers that stand outside assistants' turns and never inside.
    """

    silent: Ids
    reasoned: Ids
    end_ids: tuple[int, ...]
    around: frozenset[int]


def read_turns(
    render: Render, *, tail: Ids, markers: dict[int, str], blanks: frozenset[int], known_ends: frozenset[int]
) -> Turns:
    """Writes the turns and compares them.

    `tail`: what the generation prompt adds. `markers`: the tokenizer's added tokens
    with their texts. `known_ends`: eos, and what the caller knows.
    """
    asked = user("2")
    prompts = [ids for ids in (render(asked, speak=True), render(system("3") + asked, speak=True)) if ids]
    bare = render(asked, speak=False) or ()
    last = [render(asked + assistant(content), speak=False) for content in CONTENTS]
    inner = [render(asked + assistant(content) + user("5"), speak=False) for content in CONTENTS]
    asked_too = render(user("4"), speak=True) or ()
    reading = _Reading(
        markers,
        blanks,
        known_ends,
        # What a prompt has before the user's words, and behind them where the template speaks though not asked to.
        before_user=frozenset(asked_too[: common(asked_too, *prompts[:1])]) if prompts else frozenset(),
        spoken=tail if bare and bare in prompts else (),
    )
    run, ends = reading.answer_ends(_behind(last), _behind(inner))
    calls = _calls(render, asked)
    if calls is not None:
        ends += reading.call_ends(calls, ends, by_next_turn=not run)
    silent = _body(bare, last[0], tail)
    reasoned = _reasoned(render, asked, bare, tail, silent)
    skeleton = _skeleton(render, asked, tail, last[0], inner[0])
    inside = _inside(last[0], bare, tail, ends)
    inside |= frozenset(_until(reasoned, ends))
    if calls is not None:
        inside |= frozenset().union(*(_inside(ids, calls.bare, tail, ends) for ids in (*calls.one, *calls.two)))
    around = (skeleton & markers.keys()) - inside - run
    return Turns(silent, reasoned, tuple(dict.fromkeys(ends)), around)


def _skeleton(render: Render, asked: Messages, tail: Ids, last: Ids | None, inner: Ids | None) -> frozenset[int]:
    """What a template writes around turns: at a prompt's start and end, beside a system's words, and between turns.

    Not what its own instructions quote, which models are told to write.
    """
    plain = render(asked, speak=True) or ()
    one, two = (render(system(content) + asked, speak=True) or () for content in CONTENTS)
    words = common(one, two)
    found = {*plain[:BESIDE], *one[max(0, words - BESIDE) : words + BESIDE], *one[:BESIDE], *tail}
    if last and inner:
        found |= set(inner[common(last, inner) :])
    return frozenset(found)


def _inside(turn: Ids | None, bare: Ids, tail: Ids, ends: Sequence[int]) -> frozenset[int]:
    """The ids of a turn that its header does not have; none where the template wrote the prompt anew as well."""
    if turn is None or turn[: len(bare)] != bare:
        return frozenset()
    return frozenset(_until(_body(bare, turn, tail), ends)) - frozenset(tail)


def reasoning_is_kept(render: Render, opening: str, closing: str) -> bool:
    """Whether an earlier turn's reasoning is still in a later prompt: two reasonings, and do the ids differ?

    In the form in which the template prints the reasoning of a last turn: a
    field, a part of the content, or markers in the text.
    """

    def inline(content: str, *, reasoning: str) -> Messages:
        return assistant(f"{opening}\n{reasoning}\n{closing}\n\n{content}")

    def calling(content: str, *, reasoning: str) -> Messages:
        return assistant_calling(content, reasoning=reasoning)

    for write, shown in ((assistant, assistant), (assistant, calling), (assistant_in_parts, assistant_in_parts)):
        if _reasoning_matters(render, shown, []):
            return _reasoning_matters(render, write, user("5"))
    return _reasoning_matters(render, inline, user("5"))


def _reasoning_matters(render: Render, write: Callable[..., Messages], then: Messages) -> bool:
    first, second = (render(user("2") + write("7", reasoning=text) + then, speak=bool(then)) for text in CONTENTS)
    return first is not None and second is not None and first != second


@dataclass(frozen=True, slots=True)
class _Calls:
    """Turns with one tool call and with two, and one that a result follows, each for two arguments.

    () where the template does not take it. `bare`: the prompt before them.
    """

    bare: Ids
    one: tuple[Ids, ...]
    two: tuple[Ids, ...]
    followed: tuple[Ids, ...]


def _calls(render: Render, asked: Messages) -> _Calls | None:
    for form in CALL_FORMS:
        tools = TOOLS if form.with_tools else None
        if one := _both(render, asked, form, tools, num=1):
            two = _both(render, asked, form, tools, num=2)
            return _Calls(
                bare=render(asked, speak=False, tools=tools) or (),
                one=one,
                two=() if two == one else two,  # the template takes the first call only
                followed=_both(render, asked, form, tools, num=1, then=tool_result()),
            )
    return None


def _both(
    render: Render, asked: Messages, form: CallForm, tools: Any, *, num: int, then: Messages | None = None
) -> tuple[Ids, ...]:
    """The turn for two arguments; () when the template does not take it, or does not print them."""
    found = [
        render(asked + assistant_calling(city, num=num, form=form) + (then or []), speak=False, tools=tools)
        for city in CONTENTS
    ]
    return tuple(ids for ids in found if ids) if all(found) and found[0] != found[1] else ()


def _reasoned(render: Render, asked: Messages, bare: Ids, tail: Ids, silent: Ids) -> Ids:
    """The last turn with reasoning, in the first form that shows it; some templates do with tool calls only."""
    for write in (assistant, assistant_in_parts):
        body = _body(bare, render(asked + write("7", reasoning="4"), speak=False), tail)
        if body and body != silent:
            return body
    calling = [render(asked + assistant_calling("7", reasoning=text), speak=False) for text in CONTENTS]
    return _body(bare, calling[0], tail) if calling[0] != calling[1] else ()


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads ends off ids.

    `before_user`: what a prompt has before the user's words. `spoken`: the prompt's
    tail where the template speaks for the assistant whether asked to or not, so
    that a conversation's last marker is not a turn's end; else ().
    """

    markers: dict[int, str]
    blanks: frozenset[int]
    known_ends: frozenset[int]
    before_user: frozenset[int]
    spoken: Ids

    def answer_ends(self, last: Ids, inner: Ids) -> tuple[frozenset[int], list[int]]:
        """The markers right behind a last answer, and those that end a turn, there or further in."""
        run, inner_run = self._run(self._from_first_marker(last)), self._run(inner)
        if not run:
            return frozenset(), self._known(inner_run) or inner_run[:1]
        own = set(self._run(self.spoken)[:1]) & set(run)  # what ends the user's turn, where the template goes on
        ends = self._known(run) or [*own] or [run[0] if self.spoken else run[-1]]
        return frozenset(ends if self.spoken else run), ends + self._further_in(run, inner_run)

    def _further_in(self, run: list[int], inner_run: list[int]) -> list[int]:
        """Some templates write eos behind the last turn and another marker behind earlier ones."""
        is_next_turn = len(inner_run) == 1 and inner_run[0] in self.before_user
        return [] if set(run) & set(inner_run) or is_next_turn else inner_run[:1]

    def call_ends(self, calls: _Calls, answer_ends: Sequence[int], *, by_next_turn: bool) -> list[int]:
        """What ends a turn that calls tools, where it is not what ends an answer. `by_next_turn`: an answer is ended
        by the next turn's marker."""
        behind = _behind(calls.one)
        once = [index for index in behind if index in self.markers]
        if calls.two:
            first, second = calls.two
            between = first[common(first, second) : len(first) - len(_behind(calls.two))]
            once = [index for index in once if index not in between]
        if set(once) & {*answer_ends, *self.known_ends}:
            return self._known(once)
        ending = [index for index in once if "/" not in self.markers[index]]  # </tool_calls> closes, it does not end
        if ending and not self.spoken:
            return ending[-1:]
        if not by_next_turn:
            return []
        after = _behind(calls.followed)
        written = [index for index in behind if index not in self.blanks]
        follows = self._run(after[common(behind, after) :])
        return follows[:1] if not written or written[-1] in self.markers else []

    def _known(self, run: Sequence[int]) -> list[int]:
        return [index for index in run if index in self.known_ends]

    def _from_first_marker(self, ids: Ids) -> Ids:
        first = next((place for place, index in enumerate(ids) if index in self.markers), len(ids))
        return ids[first:]

    def _run(self, ids: Ids) -> list[int]:
        """The markers that `ids` begin with, white space aside."""
        found = []
        for index in ids:
            if index in self.markers:
                found.append(index)
            elif index not in self.blanks:
                break
        return found


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def shared_end(a: Ids, b: Ids) -> Ids:
    """The ids both end with."""
    return a[len(a) - common(a[::-1], b[::-1]) :]


def _behind(pair: Sequence[Ids | None]) -> Ids:
    """What stands behind the place at which two renderings differ."""
    first, second = pair if len(pair) == 2 else (None, None)
    # Equal ids: the template does not print the content at all, so nothing stands behind it.
    return () if first is None or second is None or first == second else shared_end(first, second)


def _body(bare: Ids, turn: Ids | None, tail: Ids) -> Ids:
    """The turn from where the prompt's tail ends; () when the template does not take it."""
    written = turn[common(bare, turn) :] if turn else ()
    return written[common(written, tail) :]


def _until(body: Ids, ends: Sequence[int]) -> Ids:
    stop = next((index for index, item in enumerate(body) if item in ends), len(body))
    return body[:stop]
