"""What a template makes of the turns generated so far, found by comparing prefixes on ids.

A small conversation is rendered turn by turn, with a stand-in for each answer.
Where every later prompt begins with exactly the ids of the one before and the
whole turn behind it, reasoning included, the template EXTENDS: a conversation is
one row with several spans, and what stands between two turns is the same
whatever was generated. Else it REWRITES (most drop earlier reasoning): each turn
is a row of its own. `evidence` says which ids decided.

`between` is what an extending template adds behind a turn, so that the next
prompt is the ids so far and nothing is tokenized again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmill.arrays import Ids, ids_array
from draftmill.judging.structure import Form, Structure, stands
from draftmill.records import HistoryMode, Thinking
from draftmill.rendering.conversation import Conversation, Message
from draftmill.rendering.template import Refused, render_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REASONING, CONTENT = ("4", "3"), ("7", "6")
"""What stands for generated text, twice each: where two renderings differ, there it is."""

USERS = ("2", "5", "8")
"""What the users of the probe say: another digit each, which no tokenizer merges with what is around it."""

PROBED_TURNS = len(USERS)
"""Prompts of the probe: with no answer, with one, with two."""

PROBE_DAY = dt.date(2001, 2, 3)
"""Whether history is rewritten does not depend on the day."""

Render = Callable[[list[Message]], tuple[int, ...] | Refused]


@dataclass(frozen=True, slots=True)
class History:
    """`stand_in`: an assistant message that the template renders as a whole generated turn.

    `turn_ids`: where history is extended, what the template writes for it, up to the id that ends the turn.
    """

    mode: HistoryMode
    evidence: str
    stand_in: Message
    turn_ids: tuple[int, ...] = ()


def history_mode(
    tokenizer: PreTrainedTokenizerBase, structure: Structure, *, template_kwargs: dict[str, Any]
) -> History:
    """What the template makes of earlier turns. Raises RecipeError as `template.render_ids` does."""

    def render(messages: list[Message]) -> tuple[int, ...] | Refused:
        ids = render_ids(tokenizer, messages, None, template_kwargs=template_kwargs, date=PROBE_DAY)
        return ids if isinstance(ids, Refused) else tuple(ids.tolist())

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    ways = list(_ways_to_write(decode, structure))
    faults = []
    for write in ways:
        found = _extended(render, write, structure, decode)
        if not isinstance(found, str):
            return History(HistoryMode.EXTENDS, _said_extends(structure), write(REASONING[0], CONTENT[0]), found)
        faults.append(found)
    # Written as generated turns are handed back (`next_turn`).
    stand_in = ways[0](REASONING[0], CONTENT[0])
    return History(HistoryMode.REWRITES, f"a later prompt rewrites earlier turns: {faults[0]}", stand_in)


def between(
    conversation: Conversation,
    turn: int,
    history: History,
    end_ids: Sequence[int],
    render: Callable[[list[Message]], Ids | Refused],
) -> tuple[int, Ids] | Refused:
    """Behind the turn before `turn`: the id that ends it, and all that the template adds until the next one begins.

    The template's rendering is the ids of the prompt before, the stand-in's turn as it always is, its end and what is
    added, with nothing between them that would be lost: else it is Refused.
    """
    said = [history.stand_in] * turn
    before = render(conversation.asked(turn - 1, said))
    after = render(conversation.asked(turn, said))
    if isinstance(before, Refused):
        return before
    if isinstance(after, Refused):
        return after
    ids, answered = after.tolist(), (*before.tolist(), *history.turn_ids[:-1])
    if tuple(ids[: len(before)]) != answered[: len(before)]:
        return Refused("the template rewrites this conversation, although it extends others")
    end = len(answered)
    at = _differ(ids, answered)
    if at < end or not set(ids[end : end + 1]) & set(end_ids):
        return Refused(f"the template writes {ids[at : at + 1] or 'nothing'} where a generated turn goes on or ends")
    return ids[end], ids_array("between", after[end + 1 :])


Write = Callable[[str, str], Message]
Decode = Callable[[Sequence[int]], str]


def _ways_to_write(decode: Decode, structure: Structure) -> Iterator[Write]:
    """The ways to hand a template a turn with its reasoning: as a field, and inside the content."""
    if not _thinks(structure):
        yield lambda _, content: {"role": "assistant", "content": content}
        return
    opened, closed = decode(structure.open_ids), decode(structure.close_ids)
    yield lambda reasoning, content: {"role": "assistant", "content": content, "reasoning_content": reasoning}
    yield lambda reasoning, content: {"role": "assistant", "content": f"{opened}{reasoning}{closed}{content}"}


def _extended(render: Render, write: Write, structure: Structure, decode: Decode) -> tuple[int, ...] | str:
    """The ids of a turn in a history written so, up to the one that ends it; in words why the template does not extend
    such a history."""
    probes = (
        *(probe(write(REASONING[0], CONTENT[0]), turns) for turns in range(PROBED_TURNS)),
        probe(write(REASONING[0], CONTENT[1]), 1),
        probe(write(REASONING[1], CONTENT[0]), 1),
    )
    rendered: list[tuple[int, ...]] = []
    for messages in probes:
        ids = render(messages)
        if isinstance(ids, Refused):
            return f"the template refuses a conversation: {ids.words}"
        rendered.append(ids)
    first, second, third, other_content, other_reasoning = rendered
    for earlier, later in ((first, second), (second, third)):
        at = _differ(earlier, later)
        if at < len(earlier):
            return f"id {at} of a prompt was {earlier[at]} and is {later[at : at + 1] or 'gone'} in the next turn's"
    end = _end(second, len(first), structure.end_ids)
    if end is None:
        return "no id ends the earlier turn"
    content, reasoning = _differ(second, other_content), _differ(second, other_reasoning)
    if content >= end:
        return "the earlier content is left out"
    if second[content + 1 :] != other_content[content + 1 :]:
        return "the earlier content stands in several places"
    if decode(second[content + 1 : end]).strip():
        return f"other ids stand between the earlier content and the end of its turn: {list(second[content + 1 : end])}"
    turn = second[len(first) : end + 1]
    if not _thinks(structure):
        return turn
    if reasoning >= end:
        return "the earlier reasoning is left out"
    opens = 1 if structure.thinking is Thinking.OPENED_BY_MODEL else 0
    before, behind = second[len(first) : reasoning], second[reasoning:content]
    if (_count(before, structure.opens), _count(before, structure.closes)) != (opens, 0):
        return f"the earlier reasoning stands behind other markers than a generated one: {list(before)}"
    if (_count(behind, structure.opens), _count(behind, structure.closes)) != (0, 1):
        return f"the earlier reasoning ends with other markers than a generated one: {list(behind)}"
    return turn


def probe(answer: Message, turns: int) -> list[Message]:
    """The probe's conversation with so many answers, up to the user's message behind them."""
    messages: list[Message] = [{"role": "user", "content": USERS[0]}]
    for user in USERS[1 : turns + 1]:
        messages += [answer, {"role": "user", "content": user}]
    return messages


def _thinks(structure: Structure) -> bool:
    return structure.thinking in (Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL)


def _count(ids: Sequence[int], forms: Sequence[Form]) -> int:
    """How often any form of a marker begins in the ids."""
    return sum(any(stands(form, ids[i : i + len(form)]) for form in forms) for i in range(len(ids)))


def _end(ids: Sequence[int], start: int, end_ids: Sequence[int]) -> int | None:
    """The index of the first id from `start` on that ends a turn."""
    return next((i for i in range(start, len(ids)) if ids[i] in end_ids), None)


def _differ(a: Sequence[int], b: Sequence[int]) -> int:
    """The first index at which they differ: the shorter's length where one begins with the other."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _said_extends(structure: Structure) -> str:
    kept = "reasoning and content" if _thinks(structure) else "content"
    return f"a later prompt begins with the ids so far ({kept} of earlier turns stay)"
