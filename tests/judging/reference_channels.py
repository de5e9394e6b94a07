"""The turn of several messages (channels), read as a string: a letter an id, and the grammar a regular expression.

`c` begins the header of a known channel, `u` of an unknown one, `m` begins a
body, `e` is the closing marker, `n` all of `next_ids`, `x` a stray beginning of
them, `r` an id that ends the turn, `.` anything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from draftmill.judging.structure import Channels, Form, Structure

MESSAGE = r"c\.*m\.*"
TURN = re.compile(rf"({MESSAGE}en\.*)*c\.*(r|m\.*(r|e|en\.*)?)?")
"""A turn, or the beginning of one: what the budget cut, too. A header that ends the turn has no body."""

UNREAD = "unread"
"""What a message is for that the budget cut off within its channel's name, or before it could get a recipient."""


@dataclass(frozen=True, slots=True)
class Header:
    """`at`: of its `channel_id`. `name`: what the message is for; None when its channel is unknown."""

    at: int
    name: str | None


def headers(out: list[int], structure: Structure, *, cut: bool) -> list[Header]:
    channels = structure.channels
    assert channels is not None
    found = []
    for at, i in enumerate(out):
        if i == channels.channel_id:
            name = name_at(out[at + 1 :], channels, cut=cut)
            if name == "reasoning":
                name = UNREAD if cut and is_last_sign(out, at, structure) else name
                name = "aside" if is_call(out, at, structure) else name
            found.append(Header(at, name))
    return found


def name_at(rest: list[int], channels: Channels, *, cut: bool) -> str | None:
    """What the channel is for whose name `rest` begins with; the longest known name counts."""
    uses = names(channels)
    known = ids_of_name(rest, channels)
    if known is not None:
        return uses[known]
    ends_within = any(len(rest) < len(name) and tuple(rest) == name[: len(rest)] for name in uses)
    return UNREAD if cut and ends_within else None


def names(channels: Channels) -> dict[tuple[int, ...], str]:
    uses = dict.fromkeys(channels.reasoning, "reasoning") | dict.fromkeys(channels.content, "aside")
    uses[channels.content[0]] = "answer"
    return uses


def ids_of_name(rest: list[int], channels: Channels) -> tuple[int, ...] | None:
    known = sorted(names(channels), key=len, reverse=True)
    return next((name for name in known if tuple(rest[: len(name)]) == name), None)


def is_call(out: list[int], at: int, structure: Structure) -> bool:
    """Whether the header of a known name at `at` leads to a body and names a recipient, before or behind its name."""
    channels = structure.channels
    assert channels is not None
    name = ids_of_name(out[at + 1 :], channels)
    assert name is not None
    behind = at + 1 + len(name)
    end = next((place for place in range(behind, len(out)) if is_sign(out, place, structure)), len(out))
    if end == len(out) or out[end] != channels.message_id:
        return False
    before = next((place for place in range(at - 1, -1, -1) if is_sign(out, place, structure)), None)
    extra = out[behind:end]
    if before is not None and out[before] == channels.next_ids[0]:
        extra = extra + out[before + len(channels.next_ids) : at]
    return any(i not in structure.blank_ids for i in extra)


def is_sign(out: list[int], place: int, structure: Structure) -> bool:
    channels = structure.channels
    assert channels is not None
    signs = {channels.channel_id, channels.message_id, channels.next_ids[0], *structure.end_ids}
    return out[place] in signs or any(reads(form, out[place : place + len(form)]) for form in structure.closes)


def is_last_sign(out: list[int], at: int, structure: Structure) -> bool:
    return not any(is_sign(out, place, structure) for place in range(at + 1, len(out)))


def letters(out: list[int], structure: Structure, *, cut: bool) -> str:
    channels = structure.channels
    assert channels is not None
    first, next_ids = channels.next_ids[0], channels.next_ids
    text, at = "", 0
    while at < len(out):
        letter, width = ".", 1
        close = max((len(form) for form in structure.closes if reads(form, out[at : at + len(form)])), default=0)
        rest = tuple(out[at : at + len(next_ids)])
        if out[at] == channels.channel_id:
            letter = "u" if name_at(out[at + 1 :], channels, cut=cut) is None else "c"
        elif out[at] == channels.message_id:
            letter = "m"
        elif out[at] in structure.end_ids:
            letter = "r"
        elif close:
            letter, width = "e", close
        elif rest == next_ids or (cut and at + len(rest) == len(out) and rest == next_ids[: len(rest)]):
            letter, width = "n", len(rest)
        elif out[at] == first:
            letter = "x"
        text += letter
        at += width
    return text


def reads(form: Form, ids: list[int]) -> bool:
    """Whether these ids are the form: at each place its id, or one of several."""
    allowed = [{ids} if isinstance(ids, int) else set(ids) for ids in form]
    return len(ids) == len(form) and all(index in some for index, some in zip(ids, allowed, strict=True))


def is_opened(out: list[int], structure: Structure, *, cut: bool) -> bool:
    """It begins with a header of a known name."""
    found = headers(out, structure, cut=cut)
    return bool(found) and found[0].at == 0 and found[0].name is not None


def is_reopened(out: list[int], structure: Structure, *, cut: bool) -> bool:
    """Reasoning behind the answer proper."""
    names = [header.name for header in headers(out, structure, cut=cut)]
    return "answer" in names and "reasoning" in names[names.index("answer") :]


def is_grammatical(out: list[int], structure: Structure, *, cut: bool) -> bool:
    return TURN.fullmatch(letters(out, structure, cut=cut)) is not None


def is_inside(out: list[int], structure: Structure, *, cut: bool) -> bool:
    """Whether it ends in a reasoning message that nothing closed."""
    last = headers(out, structure, cut=cut)[-1:]
    return bool(last) and last[0].name == "reasoning" and not closes(out, structure, since=last[0].at)


def closes(out: list[int], structure: Structure, *, since: int) -> list[int]:
    """Where closing markers end, from `since` on."""
    return [
        at + len(form)
        for at in range(since, len(out))
        for form in structure.closes
        if reads(form, out[at : at + len(form)])
    ]


def reasoning_end(out: list[int], structure: Structure, *, cut: bool) -> int | None:
    """The last id of the last marker that closes a reasoning message; None when it ends inside one."""
    if is_inside(out, structure, cut=cut):
        return None
    found = headers(out, structure, cut=cut)
    borders = [header.at for header in found[1:]] + [len(out)]
    ends = [
        end
        for header, border in zip(found, borders, strict=False)
        if header.name == "reasoning"
        for end in closes(out, structure, since=header.at)
        if end <= border
    ]
    return ends[-1] - 1 if ends else None


def content(body: list[int], structure: Structure, *, cut: bool) -> list[int] | None:
    """The last message's body, when that message is content; None when it is not."""
    channels = structure.channels
    assert channels is not None
    last = headers(body, structure, cut=cut)[-1:]
    if not last or last[0].name not in ("answer", "aside"):
        return None
    rest = body[last[0].at :]
    return rest[rest.index(channels.message_id) + 1 :] if channels.message_id in rest else []
