"""The grammar of channels: a turn of several messages, reasoning and content each on its own channel.

    output  = message (close next message)* end
    message = channel_id name [recipient, format] message_id body

`next` may be followed by a recipient. A fault is a sign behind another that it
may not follow, or at the wrong distance from it.

- An answer begins with a header of a known name. It need not reason: content at
  once is well formed.
- Messages on the reasoning channel may be several, and others may stand between
  (a tool is called in the midst of thought), but none may follow the answer
  proper: the channel that `content` names first.
- A message with a recipient calls a tool, also on the reasoning channel (gpt-oss
  calls python and its browser there): an aside, not reasoning.
- A name is read off its ids; one that goes on behind a known name is that name.
- Bodies are free, but for the grammar's own ids. A body may be a tool's call.
"""

from __future__ import annotations

import numpy as np

from draftmill.judging.answers import LENGTH, Answers, Flags, Numbers
from draftmill.judging.course import Course, earlier
from draftmill.judging.markers import NOWHERE, Markers, cut_off_at, stands_at
from draftmill.judging.signs import Kind, Sign, Signs, read_signs
from draftmill.judging.structure import Channels, Structure


def course_of_channels(answers: Answers, structure: Structure, markers: Markers) -> Course:
    """The course of every row whose structure has channels."""
    channels = structure.channels
    assert channels is not None, "a structure without channels has the grammar of one block"
    signs = read_signs(answers, channels, markers)
    last_B = signs.last(signs.are(Sign.CHANNEL))
    inside_B = (signs.of(signs.kind, last_B) == Kind.REASONING) & (last_B > signs.last(signs.are(Sign.CLOSE)))
    closed_B = signs.of(signs.behind, signs.last(signs.are(Sign.CLOSE, Kind.REASONING)))
    return Course(
        reopened_B=_reopened(signs),
        unopened_B=_unopened(answers, signs),
        foreign_B=earlier(markers.foreign.nth(0), _misplaced(answers, channels, signs)),
        inside_B=inside_B,
        content_B=_content(answers, markers, signs, last_B),
        reasoning_end_B=np.where(inside_B | (closed_B == NOWHERE), NOWHERE, closed_B - 1),
    )


def _reopened(signs: Signs) -> Numbers:
    """A header of reasoning behind one of the answer proper."""
    answer_B = signs.first(signs.are(Sign.CHANNEL, Kind.ANSWER))
    since = answer_B[signs.row]
    behind = (since != NOWHERE) & (since < np.arange(len(signs.at)))
    return signs.of(signs.at, signs.first(behind & signs.are(Sign.CHANNEL, Kind.REASONING)))


def _unopened(answers: Answers, signs: Signs) -> Numbers:
    """Anything but a header of a known name at the output's start."""
    entry_B = signs.first(signs.are(Sign.CHANNEL) & (signs.kind != Kind.UNKNOWN))
    fine_B = (signs.of(signs.at, entry_B) == answers.starts_B) | (answers.output_len_B == 0)
    return np.where(fine_B, NOWHERE, answers.starts_B)


def _misplaced(answers: Answers, channels: Channels, signs: Signs) -> Numbers:
    """The first sign that may not stand where it stands, or the first place where one is missing."""
    sign, before = signs.sign, signs.before
    stray = signs.are(Sign.MESSAGE) & (before != Sign.CHANNEL)
    stray |= signs.are(Sign.CLOSE) & (before != Sign.MESSAGE)
    stray |= signs.are(Sign.CHANNEL) & (before != Sign.NEXT) & (before != Sign.NOTHING)
    stray |= signs.are(Sign.CHANNEL, Kind.UNKNOWN) & (before != Sign.NOTHING)
    stray |= signs.are(Sign.END) & (before == Sign.NEXT)
    stray |= signs.are(Sign.NEXT) & ~_is_next(answers, channels, signs)
    follower = np.append(np.where(sign == Sign.NEXT, signs.at, NOWHERE)[1:], NOWHERE)[: len(sign)]
    alone = signs.are(Sign.CLOSE) & (signs.behind < answers.ends_B[signs.row]) & (follower != signs.behind)
    return earlier(
        signs.of(signs.at, signs.first(stray)),
        signs.of(signs.behind, signs.first(alone)),
    )


def _is_next(answers: Answers, channels: Channels, signs: Signs) -> Flags:
    """Entries where `next_ids` stand whole, or cut by the budget, right behind a closing marker."""
    cut = answers.finish_type_B[signs.row] == LENGTH
    whole = stands_at(answers, channels.next_ids, signs.at, signs.row)
    whole |= cut & cut_off_at(answers, channels.next_ids, signs.at, signs.row)
    return np.asarray(whole & (signs.before == Sign.CLOSE) & (np.roll(signs.behind, 1) == signs.at))


def _content(answers: Answers, markers: Markers, signs: Signs, last_B: Numbers) -> Numbers:
    """Where the last message's body begins, if it is content; without a body, the output's end."""
    kind_B = signs.of(signs.kind, last_B)
    body_B = signs.of(np.where(signs.after == Sign.MESSAGE, np.roll(signs.behind, -1), NOWHERE), last_B)
    stop_B = answers.ends_B - markers.last_is_end_B
    is_content_B = (kind_B == Kind.ANSWER) | (kind_B == Kind.ASIDE)
    return np.where(is_content_B, np.where(body_B == NOWHERE, stop_B, body_B), NOWHERE)
