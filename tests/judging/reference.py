"""What a verdict must be: the definitions of docs/reason-codes.md on plain lists, one function a code.

Slow on purpose, and written without the judge's rules: nothing here is shared
with `draftmill.judging` but the data it is asked about. `ORDER` is the
contract's order of precedence, written out again.

Words: the *output* is what the server returned. The *body* is the output
without the id that ends the turn. A marker of several ids is read from left to
right, the longest of its forms first, and what it covers is not read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftmill.judging.structure import Form, Structure
from draftmill.records import Completion, Thinking
from tests.judging import reference_channels as on_channels

LONGEST_ECHO = 16
"""Ids of the prompt's end that count for `prompt_echo`."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`code`: None for a good row. `reasoning_end`: index in prompt + output. `stop_id`: an id."""

    code: str | None
    reasoning_end: int | None
    stop_id: int | None


@dataclass(frozen=True, slots=True)
class Told:
    """One row and how it is judged, as lists."""

    prompt: list[int]
    out: list[int]
    completion: Completion
    structure: Structure
    on_truncated: str
    bound: int | None
    opens: list[Span]
    closes: list[Span]

    @property
    def stopped(self) -> bool:
        return self.completion.answer.finish_type == "stop"

    @property
    def cut(self) -> bool:
        return self.completion.answer.finish_type == "length"

    @property
    def reasons(self) -> bool:
        """Whether an answer of this structure has reasoning in it."""
        return self.structure.thinking in (Thinking.OPENED_BY_PROMPT, Thinking.OPENED_BY_MODEL)

    @property
    def body(self) -> list[int]:
        return self.out[:-1] if self.out and self.out[-1] in self.structure.end_ids else self.out


def wanted(completion: Completion, structure: Structure, *, on_truncated: str, bound: int | None = None) -> Wanted:
    """The verdict on one row. `bound`: how many ids at the end must be one cycle; None asks for no loops."""
    prompt, out = completion.row.prompt_ids.tolist(), completion.answer.output_ids.tolist()
    opens, closes = spans(out, structure.opens), spans(out, structure.closes)
    told = Told(prompt, out, completion, structure, on_truncated, bound, opens, closes)
    code = next((name for name in ORDER if RULES[name](told)), None)
    return Wanted(code, reasoning_end(told), stop_id(told))


def spans(ids: list[int], forms: tuple[Form, ...]) -> list[Span]:
    """Where one of the forms stands, as (first, behind last)."""
    found, at = [], 0
    while at < len(ids):
        width = max((len(form) for form in forms if on_channels.reads(form, ids[at : at + len(form)])), default=0)
        if width:
            found.append((at, at + width))
        at += width or 1
    return found


def reasoning_end(told: Told) -> int | None:
    """The last id of the first closing marker, when there is reasoning in the answer."""
    if told.structure.channels is not None:
        end = on_channels.reasoning_end(told.out, told.structure, cut=told.cut)
        return None if end is None else len(told.prompt) + end
    if not told.reasons or not told.closes:
        return None
    return len(told.prompt) + told.closes[0][1] - 1


def stop_id(told: Told) -> int | None:
    """The id that ended the turn: the last one, when the answer stopped and it is known or named to end turns.

    A negative number is no id.
    """
    matched = told.completion.answer.matched
    if not told.stopped or not told.out or isinstance(matched, str):
        return None
    last = told.out[-1]
    return last if last >= 0 and (last in told.structure.end_ids or last == matched) else None


def aborted(told: Told) -> bool:
    return not told.stopped and not told.cut


def corrupted(told: Told) -> bool:
    return told.completion.answer.matched == "NaN happened"


def prompt_mismatch(told: Told) -> bool:
    answer = told.completion.answer
    return answer.echo_ids is not None or answer.prompt_tokens not in (None, len(told.prompt))


def count_mismatch(told: Told) -> bool:
    answer, num_ids = told.completion.answer, len(told.out)
    return (
        answer.completion_tokens not in (None, num_ids)
        or num_ids > told.completion.row.max_new_tokens
        or (told.cut and answer.finish_length not in (None, num_ids))
    )


def id_out_of_range(told: Told) -> bool:
    return any(i < 0 or i > told.structure.highest_id for i in told.out)


def empty_output(told: Told) -> bool:
    return not told.out


def prompt_echo(told: Told) -> bool:
    """Two or more ids equal to the prompt's tail at the start, or one marker of it."""
    for k in range(2, min(len(told.prompt), len(told.out), LONGEST_ECHO) + 1):
        if told.out[:k] == told.prompt[-k:]:
            return True
    structure = told.structure
    tail = list(structure.tail_ids)
    markers: list[Form] = [(i,) for i in structure.foreign_ids] + [*structure.opens, *structure.closes]
    if structure.channels is not None:
        channels = structure.channels
        markers += [(channels.channel_id,), (channels.message_id,), channels.next_ids[:1]]
    in_tail = [tail[start:end] for marker in markers for start, end in spans(tail, (marker,))]
    return any(told.out[: len(ids)] == ids for ids in in_tail)


def after_end_of_turn(told: Told) -> bool:
    return any(i in told.structure.end_ids for i in told.out[:-1])


def reasoning_reopened(told: Told) -> bool:
    """A second block: one marker more than the structure has."""
    if told.structure.channels is not None:
        return on_channels.is_reopened(told.out, told.structure, cut=told.cut)
    may_open = told.structure.thinking is Thinking.OPENED_BY_MODEL
    return len(told.opens) > int(may_open) or len(told.closes) > int(told.reasons)


def reasoning_not_opened(told: Told) -> bool:
    """The model is to open and says something else first; white space says nothing, nor a marker that was cut off."""
    if told.structure.channels is not None:
        return not on_channels.is_opened(told.out, told.structure, cut=told.cut)
    if told.structure.thinking is not Thinking.OPENED_BY_MODEL:
        return False
    first = next((at for at, i in enumerate(told.out) if i not in told.structure.blank_ids), None)
    if first is None or first in [start for start, _ in told.opens]:
        return False
    rest = told.out[first:]
    return not (told.cut and any(on_channels.reads(form[: len(rest)], rest) for form in told.structure.opens))


def foreign_marker(told: Told) -> bool:
    if told.structure.channels is not None and not on_channels.is_grammatical(told.out, told.structure, cut=told.cut):
        return True
    return any(i in told.structure.foreign_ids for i in told.out)


def truncated(told: Told) -> bool:
    return told.cut and told.on_truncated == "quarantine"


def no_end_of_turn(told: Told) -> bool:
    matched = told.completion.answer.matched
    named_another = isinstance(matched, str) or matched not in (None, told.out[-1])
    return told.stopped and (told.out[-1] not in told.structure.end_ids or named_another)


def reasoning_not_closed(told: Told) -> bool:
    if told.structure.channels is not None:
        return told.stopped and on_channels.is_inside(told.out, told.structure, cut=told.cut)
    return told.stopped and told.reasons and not told.closes


def empty_content(told: Told) -> bool:
    content: list[int] | None = told.body[told.closes[0][1] :] if told.closes else told.body
    if told.structure.channels is not None:
        content = on_channels.content(told.body, told.structure, cut=told.cut)
    return told.stopped and content is not None and all(i in told.structure.blank_ids for i in content)


def degenerate(told: Told) -> bool:
    """The body's last `bound` ids are one cycle, said at least eight times; cycles longer than 32 ids are not loops."""
    if told.bound is None or len(told.body) < told.bound:
        return False
    last = told.body[-told.bound :]
    periods = range(1, min(32, told.bound // 8) + 1)
    return any(all(last[i] == last[i - period] for i in range(period, len(last))) for period in periods)


RULES = {
    "aborted": aborted,
    "corrupted": corrupted,
    "prompt_mismatch": prompt_mismatch,
    "count_mismatch": count_mismatch,
    "id_out_of_range": id_out_of_range,
    "empty_output": empty_output,
    "prompt_echo": prompt_echo,
    "after_end_of_turn": after_end_of_turn,
    "reasoning_reopened": reasoning_reopened,
    "reasoning_not_opened": reasoning_not_opened,
    "foreign_marker": foreign_marker,
    "truncated": truncated,
    "no_end_of_turn": no_end_of_turn,
    "reasoning_not_closed": reasoning_not_closed,
    "empty_content": empty_content,
    "degenerate": degenerate,
}
ORDER = tuple(RULES)
"""The contract's order of precedence: the first that applies names the row."""
